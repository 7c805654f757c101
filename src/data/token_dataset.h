#pragma once

// TokenDataset: the token shards of a data set, memory-mapped and joined in order of their names.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace nsa {

/// What the first pass over every token found.
struct TokenStatistics {
  std::int64_t tokens = 0;
  std::int64_t documents = 0;  ///< 0: the format has none
  std::int64_t largest_id = 0;
  double unigram_entropy = 0;  ///< nats per token of the empirical distribution
};

class TokenDataset {
 public:
  /// Opens every file that `patterns` (paths or globs) name, sorted. Throws Error (code 3), naming
  /// the pattern or file and what is wrong, also for a glob without a match (near misses are
  /// listed).
  explicit TokenDataset(const std::vector<std::string>& patterns);
  ~TokenDataset();
  TokenDataset(TokenDataset&&) noexcept;
  TokenDataset& operator=(TokenDataset&&) noexcept;

  std::int64_t tokens() const;
  std::int64_t shards() const;
  bool has_documents() const;
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

  /// Reads every token once. Throws Error (code 3) with file, offset and id for an id that is not
  /// in [0, vocab_size).
  TokenStatistics check_tokens(std::int64_t vocab_size) const;
  /// Identifies the content (counts, headers, head and tail of every shard), not the paths.
  std::uint32_t fingerprint() const;

 private:
  struct Shard;
  const Shard& shard_of(std::int64_t position) const;

  std::vector<std::unique_ptr<Shard>> shards_;  ///< ascending in `begin`, none empty
};

}  // namespace nsa
