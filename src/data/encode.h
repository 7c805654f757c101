#pragma once

// Encodes a corpus into token shards.

#include <cstdint>
#include <string>
#include <vector>

#include "data/corpus.h"
#include "data/shard_format.h"

namespace nsa {

struct EncodeOptions {
  CorpusOptions corpus;
  std::string model;  ///< the tokenizer
  ShardFormat format = ShardFormat::kNsa;
  /// Shards are <out>_00000.bin (and .idx for Megatron), with a validation split
  /// <out>_train_00000.bin and <out>_val_00000.bin. Where `out` ends in '/' or is a folder, they
  /// stand in it without the '_'.
  std::string out;
  double val_fraction = 0;                  ///< of the documents, in [0, 1)
  std::int64_t shard_tokens = 100'000'000;  ///< a shard is closed before it would hold more
};

/// One of train and val, or all documents.
struct EncodedSplit {
  std::string name;  ///< "train", "val", or empty without a validation split
  std::int64_t documents = 0;
  std::int64_t tokens = 0;          ///< with one end mark a document
  std::vector<std::string> shards;  ///< their .bin files
};

struct EncodeReport {
  CorpusCounts corpus;
  std::int64_t without_tokens = 0;  ///< documents that the tokenizer turned into nothing, skipped
  std::vector<EncodedSplit> splits;
  std::int64_t replaced = 0;  ///< shards of an earlier run under the same names that were removed
  std::int64_t tokens() const;
};

/// Whether document `index` is held out: one of every 1 / fraction consecutive documents, at a
/// pseudo-random place, so that the share is exact and the choice spread out and repeatable.
bool is_validation(std::int64_t index, double fraction);

/// Every document is encoded and marked with the tokenizer's end mark: behind it, or for llm.c,
/// whose files have it so, before it. Documents are not cut. The shards appear together at the end,
/// or none does. Throws Error (code 2 for the options, 3 for the text and the model).
EncodeReport encode_corpus(const EncodeOptions& options);

}  // namespace nsa
