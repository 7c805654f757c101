#pragma once

// The first pass over every token: what a data set holds, before training trusts it.

#include <cstdint>
#include <span>
#include <vector>

#include "data/token_shard.h"

namespace nsa {

struct ScannedShard {
  const TokenShard* shard = nullptr;
  std::int64_t separator = -1;  ///< the id whose positions are wanted; -1: none
};

struct TokenScan {
  std::int64_t largest_id = 0;
  double unigram_entropy = 0;  ///< nats per token of the empirical distribution
  /// For each shard the positions in it at which its separator stands, ascending.
  std::vector<std::vector<std::int64_t>> separators;
};

/// Reads every token of the shards once, on every core. Throws Error (code 3) with file, offset and
/// id for the first id that is not in [0, vocab_size), vocab_size > 0.
TokenScan scan_tokens(std::span<const ScannedShard> shards, std::int64_t vocab_size);

/// That Error, for the id at `position` of the shard.
[[noreturn]] void fail_id_outside(const TokenShard& shard, std::int64_t position,
                                  std::int64_t vocab_size);

/// The lengths of documents, in tokens.
struct DocumentLengths {
  std::int64_t shortest = 0;
  std::int64_t median = 0;  ///< the lower one of two
  std::int64_t p99 = 0;     ///< 99 of 100 documents are no longer
  std::int64_t longest = 0;
  double mean = 0;
};

/// Of at least one document; `lengths` comes back in another order.
DocumentLengths summarize(std::span<std::int64_t> lengths);

}  // namespace nsa
