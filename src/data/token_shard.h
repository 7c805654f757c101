#pragma once

// TokenShard: one opened file of tokens, whatever its format.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "data/mapped_file.h"

namespace nsa {

/// A mapped file and where its tokens stand in it. Every format that is one array of little-endian
/// unsigned ids fits; a new format adds its own open function and a line in open_shard.
struct TokenShard {
  std::string path;
  MappedFile file;
  std::span<const std::byte> header;  ///< the bytes that identify the shard, for fingerprints
  std::span<const std::byte> ids;     ///< count * id_bytes bytes
  std::int64_t count = 0;             ///< tokens
  std::int64_t id_bytes = 2;          ///< 2 (u16) or 4 (u32)
  /// Token positions at which documents start, strictly ascending; empty: the format has none.
  std::span<const std::int64_t> document_starts;
  std::int64_t vocab_size = 0;  ///< 0: unknown
  std::uint32_t tokenizer = 0;  ///< Tokenizer::fingerprint of the model that made it; 0: unknown
  std::int64_t eos_id = -1;     ///< -1: none or unknown

  /// Byte offset in the file of token `position`, for messages.
  std::int64_t byte_offset(std::int64_t position) const {
    return (ids.data() - file.bytes().data()) + position * id_bytes;
  }
  std::int64_t id(std::int64_t position) const;
  /// Copies ids [begin, begin + out.size()).
  void read(std::int64_t begin, std::span<std::int32_t> out) const;
};

/// Maps `path` and chooses the format by its first bytes. Throws Error (code 3) with one sentence
/// for a file that cannot be read, is damaged, or is of no format that this version reads.
TokenShard open_shard(const std::string& path);

}  // namespace nsa
