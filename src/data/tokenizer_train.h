#pragma once

// Trains a sentencepiece tokenizer on a corpus.

#include <cstdint>
#include <string>

#include "data/corpus.h"

namespace nsa {

struct TokenizerTrainOptions {
  CorpusOptions corpus;
  std::int64_t vocab_size = 0;
  std::string out;  ///< the model file
};

struct TokenizerTrainReport {
  CorpusCounts corpus;
  std::int64_t sampled_bytes = 0;  ///< of text that the pieces were learned from
};

/// A byte-pair model that writes any text exactly: no normalisation, spaces and newlines kept,
/// bytes for what has no piece, </s> for the end of a document. The same text gives the same file.
/// Throws Error, code 3 for the text and code 2 for a vocabulary that does not fit it.
TokenizerTrainReport train_tokenizer(const TokenizerTrainOptions& options);

}  // namespace nsa
