#pragma once

// CRC-32 (zlib's) of bytes: the checksum of manifests and the fingerprint of data files.

#include <cstdint>

namespace nsa {

/// Continues `crc` (0 to start) over `bytes` bytes.
std::uint32_t crc32(std::uint32_t crc, const void* data, std::int64_t bytes);

}  // namespace nsa
