#include "train/run_data.h"

#include <utility>

#include "core/error.h"
#include "core/format.h"
#include "core/log.h"
#include "data/loader.h"

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
  const std::int64_t eos = config.tokenizer.eos_id.value_or(0);
  if (eos >= tokenizer->vocab_size()) {
    fail_config(
        fmt::format("tokenizer.eos_id is {}, but the tokenizer {} has {} tokens; name one of "
                    "them, or leave it out for the tokenizer's own",
                    eos, config.tokenizer.model, tokenizer->vocab_size()));
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

/// A loss over the tokens of another tokenizer tells nothing.
void check_same_tokenizer(const TokenDataset& train, const TokenDataset& val) {
  if (train.tokenizer() == 0 || val.tokenizer() == 0 || train.tokenizer() == val.tokenizer()) {
    return;
  }
  fail_data(
      fmt::format("data.train ({}) was made with tokenizer {:08x} and data.val ({}) with {:08x}; "
                  "encode both with one tokenizer",
                  train.describe(), train.tokenizer(), val.describe(), val.tokenizer()));
}

/// Samples of a model that learned the tokens of another tokenizer would be no text.
void check_own_tokenizer(const TokenDataset& train, const Tokenizer& tokenizer,
                         const TokenizerConfig& config) {
  if (train.tokenizer() == 0 || train.tokenizer() == tokenizer.fingerprint()) return;
  fail_config(
      fmt::format("tokenizer.model is {} ({:08x}), but data.train ({}) was made with tokenizer "
                  "{:08x}; name that one, or leave tokenizer.model out",
                  config.model, tokenizer.fingerprint(), train.describe(), train.tokenizer()));
}

DatasetOptions dataset_options(const Config& config) {
  const DocSeparator& wanted = config.data.doc_sep;
  if (!wanted.id) return {.format = shard_format_of(config.data.format)};
  if (*wanted.id >= config.model.vocab_size) {
    fail_config(fmt::format(
        "data.doc_sep.id is {}, outside model.vocab_size = {}; name the token that stands between "
        "documents, for example 50256 for the GPT-2 tokenizer",
        *wanted.id, config.model.vocab_size));
  }
  return {.format = shard_format_of(config.data.format),
          .separator = Separator{.id = *wanted.id, .before = wanted.before}};
}

void warn_of_no_separator(const TokenDataset& data, const TokenStatistics& found, const char* key,
                          const DocSeparator& wanted) {
  if (!wanted.id || data.has_index() || found.separators > 0) return;
  log::warn(fmt::format("data.doc_sep.id = {} stands nowhere in {}, so its tokens are one document",
                        *wanted.id, key));
}

}  // namespace

std::optional<double> RunData::unigram_nats() const {
  return val_found ? std::optional(val_found->unigram_entropy) : std::nullopt;
}

RunData open_data(const Config& config) {
  std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(config);
  const DatasetOptions options = dataset_options(config);
  RunData data{.train = TokenDataset(config.data.train, options),
               .val = std::nullopt,
               .train_found = std::nullopt,
               .val_found = std::nullopt,
               .tokenizer = std::move(tokenizer)};
  check_vocabulary(data.train, "data.train", config.model);
  if (data.tokenizer) check_own_tokenizer(data.train, *data.tokenizer, config.tokenizer);
  if (!config.data.val.empty()) {
    data.val.emplace(config.data.val, options);
    check_one_target(*data.val);
    check_same_tokenizer(data.train, *data.val);
    check_vocabulary(*data.val, "data.val", config.model);
    // Read even where check_tokens is off: the entropy that the loss is held against comes from it.
    data.val_found = data.val->check_tokens(config.model.vocab_size);
    warn_of_no_separator(*data.val, *data.val_found, "data.val", config.data.doc_sep);
  }
  if (config.data.check_tokens) {
    data.train_found = data.train.check_tokens(config.model.vocab_size);
    warn_of_no_separator(data.train, *data.train_found, "data.train", config.data.doc_sep);
  }
  if (config.data.doc_sep.id && data.train.has_index() && (!data.val || data.val->has_index())) {
    log::warn("data.doc_sep.id changes nothing: all shards tell where their documents start");
  }
  return data;
}

}  // namespace nsa
