#pragma once

// The token shard format "nsa": its header, its writer and its reader. docs/formats.md tells the
// layout to users.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/atomic_file.h"
#include "data/shard_writer.h"
#include "data/token_shard.h"

namespace nsa {

/// The first 64 bytes of a shard, little-endian. Then `tokens` ids, zeros up to a multiple of 8
/// bytes, and `documents` int64 token positions at which documents start.
struct NsaShardHeader {
  static constexpr std::array<char, 8> kMagic = {'N', 'S', 'A', 'T', 'O', 'K', 'E', 'N'};
  static constexpr std::uint32_t kVersion = 1;

  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t id_bytes = 2;  ///< 2: u16, 4: u32
  std::int64_t tokens = 0;
  std::int64_t vocab_size = 0;
  std::uint32_t tokenizer = 0;  ///< CRC-32 of the tokenizer's file, 0: unknown
  std::int32_t eos_id = -1;     ///< -1: none
  std::int64_t documents = 0;
  std::array<std::uint8_t, 16> reserved{};  ///< zero
};
static_assert(sizeof(NsaShardHeader) == 64);

/// Bytes per id: ids up to 65,535 need two.
constexpr std::int64_t id_bytes_for(std::int64_t vocab_size) {
  return vocab_size <= 65536 ? 2 : 4;
}

inline constexpr std::int64_t kNsaStartsAlignment = 8;
/// Where the document starts stand: after the ids, aligned.
constexpr std::int64_t nsa_starts_offset(std::int64_t tokens, std::int64_t id_bytes) {
  const std::int64_t end = static_cast<std::int64_t>(sizeof(NsaShardHeader)) + tokens * id_bytes;
  return (end + kNsaStartsAlignment - 1) / kNsaStartsAlignment * kNsaStartsAlignment;
}

/// Streams documents into one shard; holds 8 bytes per document in memory.
class NsaShardWriter : public ShardWriter {
 public:
  NsaShardWriter(const std::string& path, const ShardLabel& label);

  void add_document(std::span<const std::int32_t> ids) override;
  std::int64_t tokens() const override { return header_.tokens; }
  std::vector<AtomicFile> finish() override;

 private:
  AtomicFile file_;
  NsaShardHeader header_;
  std::vector<std::int64_t> starts_;
};

/// Reads a mapped file that starts with the magic. Throws Error (code 3) naming the file, what was
/// found and what was wanted.
TokenShard open_nsa_shard(const std::string& path, MappedFile file);

}  // namespace nsa
