#pragma once

// TokenShard: one opened file of tokens, whatever its format.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/mapped_file.h"
#include "data/shard_format.h"

namespace nsa {

/// A mapped file and where its tokens stand in it. Every format that is one array of little-endian
/// ids fits; a new format adds its own open function and a line in open_shard.
struct TokenShard {
  std::string path;
  ShardFormat format = ShardFormat::kNsa;
  MappedFile file;
  MappedFile index_file;              ///< empty where the format has one file
  std::span<const std::byte> header;  ///< the bytes that identify the shard, for fingerprints
  std::span<const std::byte> ids;     ///< count * id_bytes bytes
  std::int64_t count = 0;             ///< tokens
  std::int64_t id_bytes = 2;          ///< 1, 2, 4 or 8
  bool signed_ids = false;            ///< an id with its highest bit set is below zero
  /// Token positions at which documents start, strictly ascending; empty: the format has none.
  std::span<const std::int64_t> document_starts;
  std::vector<std::int64_t> own_starts;  ///< what document_starts shows where the file has not them
  std::int64_t empty_documents = 0;      ///< documents without tokens, which document_starts omits
  std::int64_t vocab_size = 0;           ///< 0: unknown
  std::uint32_t tokenizer = 0;  ///< Tokenizer::fingerprint of the model that made it; 0: unknown
  std::int64_t eos_id = -1;     ///< -1: none or unknown

  /// Byte offset in the file of token `position`, for messages.
  std::int64_t byte_offset(std::int64_t position) const {
    return (ids.data() - file.bytes().data()) + position * id_bytes;
  }
  std::int64_t id(std::int64_t position) const;
  /// Copies ids [begin, begin + out.size()). An id that int32 cannot hold is -1.
  void read(std::int64_t begin, std::span<std::int32_t> out) const;
};

/// The format of the file by its first bytes or by the Megatron index beside it; empty for none.
/// Throws Error (code 3) for a file that cannot be read.
std::optional<ShardFormat> find_format(const std::string& path);

/// Maps `path` and chooses the format by its first bytes; a file without known ones that has a
/// Megatron index beside it is Megatron's. A `wanted` format must be the file's. Throws Error
/// (code 3) with one sentence for a file that cannot be read, is damaged, or is of no format that
/// this version reads.
TokenShard open_shard(const std::string& path, std::optional<ShardFormat> wanted = {});

}  // namespace nsa
