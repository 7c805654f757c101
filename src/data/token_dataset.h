#pragma once

// TokenDataset: the token shards of a data set, memory-mapped and joined in order of their names.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/shard_format.h"
#include "data/token_scan.h"

namespace nsa {

/// The token between documents, for shards whose format does not tell where documents start.
struct Separator {
  std::int64_t id = -1;
  /// Whether it is the first token of the document behind it (llm.c), or the last of the one
  /// before.
  bool before = true;
};

struct DatasetOptions {
  std::optional<ShardFormat> format{};   ///< what every shard must be; empty: told from the files
  std::optional<Separator> separator{};  ///< empty: none
};

/// What the first pass over every token found.
struct TokenStatistics {
  std::int64_t tokens = 0;
  /// The documents that the data are cut into with doc_mask; a part at an end counts too. 0: not
  /// every shard tells.
  std::int64_t documents = 0;
  DocumentLengths lengths{};         ///< zeros where there are no documents
  std::int64_t empty_documents = 0;  ///< in the document indices, without tokens, left out
  std::int64_t separators = 0;       ///< tokens that are the separator, where there is no index
  std::int64_t largest_id = 0;
  double unigram_entropy = 0;  ///< nats per token of the empirical distribution
};

class TokenDataset {
 public:
  /// Opens every file that `patterns` (paths or globs) name, sorted. A Megatron pair is named by
  /// its .bin, its .idx or both, or by the path that they share without suffix. Throws Error (code
  /// 3), naming the pattern or file and what is wrong, also for a glob without a match (near misses
  /// are listed) and for a file that two of the names lead to.
  explicit TokenDataset(const std::vector<std::string>& patterns,
                        const DatasetOptions& options = {});
  ~TokenDataset();
  TokenDataset(const TokenDataset&) = delete;
  TokenDataset& operator=(const TokenDataset&) = delete;
  TokenDataset(TokenDataset&&) noexcept;
  TokenDataset& operator=(TokenDataset&&) noexcept;

  std::int64_t tokens() const;
  std::int64_t shards() const;
  /// Whether every shard tells where documents start, by an index or by the separator.
  bool has_documents() const;
  /// Whether every shard has an index, so that a separator has no effect.
  bool has_index() const;
  /// Vocabulary size as the shards' headers tell it (0: unknown).
  std::int64_t vocab_size() const;
  /// Tokenizer::fingerprint of the model that made the shards (0: unknown). One data set has one.
  std::uint32_t tokenizer() const;
  /// The first shard and how many more there are, for messages.
  std::string describe() const;

  /// Tokens [begin, begin + out.size()) of the joined shards.
  void read(std::int64_t begin, std::span<std::int32_t> out) const;
  /// Appends the positions in (begin, end) at which a document starts, ascending, minus `begin`.
  void document_starts(std::int64_t begin, std::int64_t end, std::vector<std::int32_t>& out) const;
  /// Throws Error (code 3) for the id at `position`, which is not in [0, vocab_size).
  [[noreturn]] void fail_id(std::int64_t position, std::int64_t vocab_size) const;

  /// Reads every token once. Throws Error (code 3) with file, offset and id for an id that is not
  /// in [0, vocab_size).
  TokenStatistics check_tokens(std::int64_t vocab_size) const;
  /// Identifies the content (counts, headers, head and tail of every shard), not the paths.
  std::uint32_t fingerprint() const;

 private:
  struct Shard;
  const Shard& shard_of(std::int64_t position) const;
  void separated_starts(const Shard& shard, std::int64_t begin, std::int64_t end,
                        std::vector<std::int32_t>& out) const;
  std::vector<std::int64_t> document_lengths(
      const std::vector<std::vector<std::int64_t>>& separators) const;

  std::vector<std::unique_ptr<Shard>> shards_;  ///< ascending in `begin`
  std::optional<Separator> separator_;
};

}  // namespace nsa
