#pragma once

// The key-value recall task: documents that list pairs and ask for them later, when only attention
// over a distance can tell. It is generated, seeded, and the same on every machine.
//
// A document of n tokens is n/4 records, n/4 fillers and n/4 queries of two tokens, `key value`. A
// record is one token that stands for a pair of a key and a value, so that a block of tokens holds
// as many pairs as tokens. The queries ask for every pair once, in another order. Keys of a
// document differ and values are drawn at random, so nothing but the record tells the answer.

#include <cstdint>
#include <string>
#include <vector>

namespace nsa::recall {

/// Ids: 0 is filler, then come the keys, the values, and a record for each pair of them.
struct Task {
  std::int64_t length = 256;   ///< tokens of a held-out document, and of the longest in training
  std::int64_t shortest = 16;  ///< tokens of the shortest training document: length / 2^i
  std::int64_t keys = 64;
  std::int64_t values = 8;
  std::uint64_t seed = 1;

  std::int64_t vocab_size() const { return 1 + keys + values + keys * values; }
  /// Of a document of n tokens: its records, its fillers, its queries.
  static std::int64_t pairs(std::int64_t n) { return n / 4; }
  /// Throws Error (code 2) for sizes that give no task, naming the option.
  void check() const;
};

enum class Split : std::uint8_t { kTrain, kVal };

/// Document `index` of a split: the two never share one. `n`, a multiple of 4, tokens.
std::vector<std::int32_t> document(const Task& task, Split split, std::int64_t index,
                                   std::int64_t n);

/// A query of a document: the position of its key, and how far back the record of the answer is.
struct Query {
  std::int64_t position = 0;  ///< of the key; the answer is the next token
  std::int64_t distance = 0;
};

/// The queries of a document, in order. Throws Error (code 3) where it is none of this task.
std::vector<Query> queries(const Task& task, const std::vector<std::int32_t>& document);

struct Written {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
};

/// Writes pages of `task.length` tokens until there are `tokens` of them, as one shard of format
/// nsa. Each page holds documents of one length, which changes from page to page at random.
Written write_train(const Task& task, const std::string& path, std::int64_t tokens);
/// Writes held-out documents of full length.
Written write_val(const Task& task, const std::string& path, std::int64_t documents);

}  // namespace nsa::recall
