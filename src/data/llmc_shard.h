#pragma once

// The token shards of llm.c: a header of 256 int32, then the tokens. docs/formats.md tells the
// layout to users.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/mapped_file.h"
#include "data/shard_writer.h"
#include "data/token_shard.h"

namespace nsa {

inline constexpr std::int64_t kLlmcHeaderBytes = 1024;
/// The header counts tokens with an int32.
inline constexpr std::int64_t kLlmcMostTokens = (std::int64_t{1} << 31) - 1;

/// One of the two kinds, which differ in the width of a token.
struct LlmcKind {
  std::int32_t magic;
  std::int32_t version;
  std::int64_t id_bytes;
};
inline constexpr LlmcKind kLlmcNarrow{.magic = 20240520, .version = 1, .id_bytes = 2};
inline constexpr LlmcKind kLlmcWide{.magic = 20240801, .version = 7, .id_bytes = 4};

/// The kind that the first four bytes name; empty for no token shard of llm.c.
std::optional<LlmcKind> llmc_kind(std::span<const std::byte> bytes);
/// What another file of llm.c holds ("a model"), told by its first four bytes; empty for none.
std::string llmc_other_file(std::span<const std::byte> bytes);

/// Reads a mapped file that llmc_kind knows. Throws Error (code 3) naming the file, what was found
/// and what was wanted. The format does not tell where documents start.
TokenShard open_llmc_shard(const std::string& path, MappedFile file);

class LlmcShardWriter : public ShardWriter {
 public:
  LlmcShardWriter(const std::string& path, const ShardLabel& label);
  void add_document(std::span<const std::int32_t> ids) override;
  std::int64_t tokens() const override { return tokens_; }
  std::vector<AtomicFile> finish() override;

 private:
  AtomicFile file_;
  LlmcKind kind_;
  std::int64_t vocab_size_;
  std::int64_t tokens_ = 0;
};

}  // namespace nsa
