// The schema's sections data, tokenizer, train, optim and schedule.

#include "config/schema_builder.h"
#include "core/error.h"
#include "core/format.h"

namespace nsa::settings {
namespace {

void add_separator_keys(std::vector<Key>& keys) {
  const Section separator(
      keys, "data.doc_sep.", [](auto& draft) -> auto& { return draft.config.data.doc_sep; });
  separator.add("id", &DocSeparator::id, {.min = 0, .max = kMaxInt32},
                "The token between documents, for shards that do not tell where documents start. "
                "null: none.");
  const Rules rules{.name = "data.doc_sep.where", .choices = {"before", "after"}};
  const auto read = [](Draft& draft, const Value& value, const Rules& named) {
    draft.config.data.doc_sep.before = read_choice(value, named) == 0;
  };
  const auto write = [](const Draft& draft) {
    return std::string(draft.config.data.doc_sep.before ? "before" : "after");
  };
  keys.push_back({.rules = rules,
                  .type = join_or(rules.choices),
                  .doc = "Whether that token is the first of a document (llm.c) or the last.",
                  .read = read,
                  .write = write});
}

void add_data_keys(std::vector<Key>& keys) {
  const Section data(
      keys, "data.", [](auto& draft) -> auto& { return draft.config.data; });
  data.add("train", &DataConfig::train, {.path = true, .shared = false},
           "Training shards: paths or globs. Needed.");
  data.add("val", &DataConfig::val, {.path = true, .shared = false},
           "Validation shards: paths or globs. Empty: no validation.");
  keys.push_back(later_key("data.mix", {"null"}, "list of {path, weight}, or null",
                           "Several sources by weight in place of data.train."));
  data.add("format", &DataConfig::format,
           {.choices = {"auto", "nsa", "llmc", "megatron"}, .later = {"llmq", "jsonl"}},
           "Format of the shards (docs/formats.md). auto: told from the files.");
  keys.push_back(later_key("data.text_key", {"text"}, "text", "The key of the text in JSONL.",
                           "text becomes shards beforehand, with nsa_tokenize encode --text-key"));
  data.add("doc_mask", &DataConfig::doc_mask, {},
           "Attention and positions restart at each document.");
  add_separator_keys(keys);
  keys.push_back(later_key("data.on_bad_line", {"error"}, "error or skip",
                           "What a malformed line of JSONL does.",
                           "text becomes shards beforehand, with nsa_tokenize encode "
                           "--on-bad-line"));
  data.add("on_change", &DataConfig::on_change,
           {.choices = {"error", "restart", "ignore"}, .shared = false},
           "What a resume does when the data are not those of the checkpoint.");
  data.add("shuffle", &DataConfig::shuffle, {},
           "Permute the pages of each epoch by (seed, epoch); false: in order.");
  data.add("check_tokens", &DataConfig::check_tokens, {.shared = false},
           "Read every token at the start, so that an id out of range is found before step 1.");
  const Section tokenizer(
      keys, "tokenizer.", [](auto& draft) -> auto& { return draft.config.tokenizer; });
  tokenizer.add("model", &TokenizerConfig::model, {.path = true, .shared = false},
                "The sentencepiece model, for samples. null: none.");
  tokenizer.add("eos_id", &TokenizerConfig::eos_id, {.min = 0, .max = kMaxInt32, .shared = false},
                "The token that ends a document. null: the tokenizer's.");
}

void add_train_keys(std::vector<Key>& keys) {
  const Section train(
      keys, "train.", [](auto& draft) -> auto& { return draft.config.train; });
  train.add("seq_len", &TrainConfig::seq_len, {.min = 1, .max = kMaxSeqLen, .unit = "tokens"},
            "Context length of the first stage, unless that stage says otherwise.");
  train.add("tokens_per_step", &TrainConfig::tokens_per_step,
            {.min = 1, .max = kMaxTokensPerStep, .suffix = true, .unit = "tokens"},
            "Tokens of one update; a multiple of seq_len (and of micro_batch x seq_len).");
  train.add("micro_batch", &TrainConfig::micro_batch,
            {.min = 1, .max = kMaxInt32, .none = "auto", .shared = false, .unit = "sequences"},
            "Sequences computed at once. auto: the most that divide the step and hold at most "
            "4096 tokens, on a GPU 16384.");
  train.add("steps", &TrainConfig::steps, {.min = 1, .max = kMaxSteps, .unit = "steps"},
            "Length of the run. Exactly one of steps, epochs and tokens; none: 20000 steps.");
  train.add("epochs", &TrainConfig::epochs, {.min = 0, .max = 1e6, .open = true, .unit = "epochs"},
            "Length of the run in passes over the training data, rounded up to whole steps.");
  train.add("tokens", &TrainConfig::tokens,
            {.min = 1, .max = kMaxTokens, .suffix = true, .unit = "tokens"},
            "Length of the run in tokens, rounded up to whole steps.");
}

void add_betas(std::vector<Key>& keys) {
  const Rules rules{.name = "optim.betas", .min = 0, .max = 0.9999999};
  const auto read = [](Draft& draft, const Value& value, const Rules& named) {
    if (value.kind == Value::Kind::kList && value.items.size() != 2) {
      fail_config(
          fmt::format("{}: {} is a list of {} value(s); it must be one of two numbers such as "
                      "[0.9, 0.95]",
                      value.where, named.name, value.items.size()));
    }
    if (value.kind != Value::Kind::kList) {
      refuse(value, named, "a list of two numbers such as [0.9, 0.95]");
    }
    read_value(value.items[0], named, draft.config.optim.beta1);
    read_value(value.items[1], named, draft.config.optim.beta2);
  };
  const auto write = [](const Draft& draft) {
    return fmt::format("[{}, {}]", draft.config.optim.beta1, draft.config.optim.beta2);
  };
  keys.push_back({.rules = rules,
                  .type = "list of two numbers",
                  .doc = "Decay of AdamW's first and second moment, each below 1.",
                  .read = read,
                  .write = write});
}

void add_optim_keys(std::vector<Key>& keys) {
  keys.push_back(later_key("optim.name", {"adamw"}, "adamw", "The optimiser."));
  const Section optim(
      keys, "optim.", [](auto& draft) -> auto& { return draft.config.optim; });
  optim.add("lr", &OptimConfig::lr, {.min = 0, .open = true}, "Peak learning rate.");
  add_betas(keys);
  optim.add("eps", &OptimConfig::eps, {.min = 0, .open = true},
            "Added to the root of the second moment.");
  optim.add("weight_decay", &OptimConfig::weight_decay, {.min = 0},
            "Decoupled weight decay of matrices; vectors, biases and pooling logits have none.");
  optim.add("clip", &OptimConfig::clip, {.min = 0},
            "Largest global norm of the gradient; above it the gradient is scaled. 0: off.");
  optim.add("z_loss", &OptimConfig::z_loss, {.min = 0},
            "Weight of the squared log of the softmax's denominator. 0: off.");
}

void add_schedule_keys(std::vector<Key>& keys) {
  const Section lr(
      keys, "schedule.lr.", [](auto& draft) -> auto& { return draft.config.schedule.lr; });
  lr.add("kind", &LrConfig::kind, {.choices = {"constant", "linear", "cosine", "wsd"}},
         "Shape of the learning rate after the warm-up, over the whole run.");
  lr.add("warmup", &LrConfig::warmup, {.min = 0, .max = kMaxTokens, .unit = "steps or tokens"},
         "Linear warm-up; step i of W has i / W of the peak. Tokens when written with K, M or B.");
  lr.add("min_ratio", &LrConfig::min_ratio, {.min = 0, .max = 1},
         "Learning rate of the last step as a part of the peak (linear, cosine, wsd).");
  lr.add("decay", &LrConfig::decay, {.min = 0, .max = 1, .unit = "part of the run"},
         "wsd: how much of the run decays, at its end.");
  lr.add("shape", &LrConfig::shape, {.choices = {"linear", "sqrt", "cosine"}},
         "wsd: shape of that decay.");
  add_stages_key(keys);
}

}  // namespace

void add_training_keys(std::vector<Key>& keys) {
  add_data_keys(keys);
  add_train_keys(keys);
  add_optim_keys(keys);
  add_schedule_keys(keys);
}

}  // namespace nsa::settings
