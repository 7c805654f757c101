#pragma once

// The token shards of Megatron: bare tokens in NAME.bin, and NAME.idx that tells their type, the
// sequences and the documents. docs/formats.md tells the layout to users.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/mapped_file.h"
#include "data/shard_writer.h"
#include "data/token_shard.h"

namespace nsa {

inline constexpr std::string_view kMegatronMagic("MMIDIDX\0\0", 9);
/// Magic, version, type, sequences, document indices.
inline constexpr std::int64_t kMegatronHeaderBytes = 9 + 8 + 1 + 8 + 8;

/// Codes of the types that hold token ids.
enum class MegatronType : std::uint8_t { kU8 = 1, kI32 = 4, kI64 = 5, kU16 = 8 };

/// Megatron's own rule: ids of smaller vocabularies are u16, those of others i32.
constexpr MegatronType megatron_type_for(std::int64_t vocab_size) {
  return vocab_size < 65500 ? MegatronType::kU16 : MegatronType::kI32;
}

/// `path` with the suffix .bin or .idx.
std::string megatron_tokens_path(const std::string& path);
std::string megatron_index_path(const std::string& path);
/// Whether the file is there and starts with the magic of an index.
bool is_megatron_index(const std::string& path);

/// Reads NAME.bin by NAME.idx; `path` is either. Throws Error (code 3) naming the file, what was
/// found and what was wanted. Documents without tokens are left out and counted.
TokenShard open_megatron_shard(const std::string& path);

/// One sequence a document. Holds 12 bytes per document in memory.
class MegatronShardWriter : public ShardWriter {
 public:
  MegatronShardWriter(const std::string& path, const ShardLabel& label);
  void add_document(std::span<const std::int32_t> ids) override;
  std::int64_t tokens() const override { return tokens_; }
  std::vector<AtomicFile> finish() override;

 private:
  AtomicFile file_;
  AtomicFile index_;
  MegatronType type_;
  std::int64_t vocab_size_;
  std::int64_t tokens_ = 0;
  std::vector<std::int32_t> lengths_;
  std::vector<std::int64_t> pointers_;
};

}  // namespace nsa
