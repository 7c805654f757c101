#pragma once

// RunData: the tokens a run reads, checked against its model before anything is built on them.

#include <memory>
#include <optional>

#include "config/config.h"
#include "data/token_dataset.h"
#include "data/tokenizer.h"

namespace nsa {

struct RunData {
  TokenDataset train;
  std::optional<TokenDataset> val;             ///< none: the run is not evaluated
  std::optional<TokenStatistics> train_found;  ///< none: data.check_tokens is off
  std::optional<TokenStatistics> val_found;    ///< there whenever val is
  std::unique_ptr<Tokenizer> tokenizer;        ///< null: no tokenizer.model

  std::uint32_t train_fingerprint() const { return train.fingerprint(); }
  std::uint32_t val_fingerprint() const { return val ? val->fingerprint() : 0; }
  std::optional<double> unigram_nats() const;
};

/// Opens what the configuration names. Throws Error: code 2 for a tokenizer, or shards made by one,
/// with more tokens than model.vocab_size, for a data.doc_sep.id outside it, and for samples
/// without a tokenizer; code 3 for files that are missing or malformed, and for a token id out of
/// range (every token is read once).
RunData open_data(const Config& config);

}  // namespace nsa
