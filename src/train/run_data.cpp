#include "train/run_data.h"

#include <utility>

#include "core/error.h"
#include "core/format.h"

namespace nsa {
namespace {

std::unique_ptr<Tokenizer> open_tokenizer(const Config& config) {
  if (config.tokenizer.model.empty()) {
    if (!config.eval.sample.prompts.empty()) {
      fail_config("eval.sample needs a tokenizer; set tokenizer.model or remove eval.sample");
    }
    return nullptr;
  }
  auto tokenizer = std::make_unique<Tokenizer>(config.tokenizer.model);
  if (tokenizer->vocab_size() > config.model.vocab_size) {
    fail_config(fmt::format(
        "the tokenizer {} has {} tokens, more than model.vocab_size = {}; raise model.vocab_size "
        "to at least {}",
        config.tokenizer.model, tokenizer->vocab_size(), config.model.vocab_size,
        tokenizer->vocab_size()));
  }
  return tokenizer;
}

void check_vocabulary(const TokenDataset& data, const char* key, const ModelConfig& model) {
  if (data.vocab_size() <= model.vocab_size) return;
  fail_config(fmt::format(
      "the shards of {} were made with a vocabulary of {}, more than model.vocab_size = {}; raise "
      "model.vocab_size to at least {}",
      key, data.vocab_size(), model.vocab_size, data.vocab_size()));
}

}  // namespace

std::optional<double> RunData::unigram_nats() const {
  return val_found ? std::optional(val_found->unigram_entropy) : std::nullopt;
}

RunData open_data(const Config& config) {
  std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(config);
  RunData data{.train = TokenDataset(config.data.train),
               .val = std::nullopt,
               .train_found = std::nullopt,
               .val_found = std::nullopt,
               .tokenizer = std::move(tokenizer)};
  check_vocabulary(data.train, "data.train", config.model);
  if (!config.data.val.empty()) {
    data.val.emplace(config.data.val);
    check_vocabulary(*data.val, "data.val", config.model);
    // Read even where check_tokens is off: the entropy that the loss is held against comes from it.
    data.val_found = data.val->check_tokens(config.model.vocab_size);
  }
  if (config.data.check_tokens) {
    data.train_found = data.train.check_tokens(config.model.vocab_size);
  }
  return data;
}

}  // namespace nsa
