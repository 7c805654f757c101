#include "core/checksum.h"

#include <algorithm>

#include <zlib.h>

namespace nsa {

std::uint32_t crc32(std::uint32_t crc, const void* data, std::int64_t bytes) {
  const auto* at = static_cast<const Bytef*>(data);
  while (bytes > 0) {
    const auto part = static_cast<uInt>(std::min<std::int64_t>(bytes, 1 << 30));
    crc = static_cast<std::uint32_t>(::crc32(crc, at, part));
    at += part;
    bytes -= part;
  }
  return crc;
}

}  // namespace nsa
