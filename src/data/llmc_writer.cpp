// The writer of llm.c's token shards.

#include <array>

#include "core/error.h"
#include "core/format.h"
#include "data/llmc_shard.h"
#include "data/nsa_shard.h"

namespace nsa {

LlmcShardWriter::LlmcShardWriter(const std::string& path, const ShardLabel& label)
    : file_(path),
      kind_(id_bytes_for(label.vocab_size) == kLlmcNarrow.id_bytes ? kLlmcNarrow : kLlmcWide),
      vocab_size_(label.vocab_size) {
  constexpr std::array<char, kLlmcHeaderBytes> kZeros{};
  file_.write(kZeros.data(), kLlmcHeaderBytes);
}

void LlmcShardWriter::add_document(std::span<const std::int32_t> ids) {
  check_ids(file_.path(), ids, vocab_size_);
  const std::int64_t after = tokens_ + static_cast<std::int64_t>(ids.size());
  if (after > kLlmcMostTokens) {
    fail_data(
        fmt::format("{}: would hold {} tokens, and a shard of llm.c counts at most {}; lower "
                    "--shard-tokens, split the document, or use --format nsa",
                    file_.path(), after, kLlmcMostTokens));
  }
  write_ids(file_, ids, kind_.id_bytes);
  tokens_ = after;
}

std::vector<AtomicFile> LlmcShardWriter::finish() {
  const std::array<std::int32_t, 3> start = {kind_.magic, kind_.version,
                                             static_cast<std::int32_t>(tokens_)};
  file_.write_at(0, start.data(), sizeof start);
  file_.close();
  std::vector<AtomicFile> files;
  files.push_back(std::move(file_));
  return files;
}

}  // namespace nsa
