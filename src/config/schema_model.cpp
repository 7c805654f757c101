// The schema's sections model and attention.

#include <algorithm>
#include <array>

#include "config/presets.h"
#include "config/schema_builder.h"

namespace nsa::settings {
namespace {

constexpr double kMaxVocabulary = 1 << 24;
constexpr double kMaxLayers = 1 << 12;
constexpr double kMaxHeads = 1 << 12;
constexpr double kMaxBins = 1 << 16;
// More blocks than a context of 2^20 tokens has at a block of 16.
constexpr double kMaxBlocks = 1 << 16;
constexpr double kMaxWidth = 1 << 20;

const std::array<std::string, 3> kBranchNames = {"compressed", "selected", "window"};

std::array<bool, 3> branch_flags(const AttentionConfig& attention) {
  return {attention.compressed, attention.selected, attention.window_branch};
}

void add_branches(std::vector<Key>& keys) {
  const Rules rules{.name = "attention.branches",
                    .choices = {kBranchNames.begin(), kBranchNames.end()}};
  const auto read = [](Draft& draft, const Value& value, const Rules& named) {
    std::vector<std::string> words;
    if (value.kind != Value::Kind::kNull) read_value(value, named, words);
    if (words.empty()) refuse(value, named, "a list of at least one branch");
    std::array<bool, 3> flags{};
    for (const std::string& word : words) {
      const auto* const name = std::find(kBranchNames.begin(), kBranchNames.end(), word);
      bool& flag = flags.at(static_cast<std::size_t>(name - kBranchNames.begin()));
      if (flag) refuse(value, named, "a list that names " + word + " once");
      flag = true;
    }
    AttentionConfig& attention = draft.config.attention;
    attention.compressed = flags[kCompressed];
    attention.selected = flags[kSelected];
    attention.window_branch = flags[kWindow];
  };
  const auto write = [](const Draft& draft) {
    const std::array<bool, 3> flags = branch_flags(draft.config.attention);
    std::vector<std::string> words;
    for (std::size_t i = 0; i < flags.size(); ++i) {
      if (flags.at(i)) words.push_back(kBranchNames.at(i));
    }
    return write_value(words, Rules{.choices = words});
  };
  keys.push_back({.rules = rules,
                  .type = type_name(std::vector<std::string>{}, rules),
                  .doc = "The branches of NSA that reach the output, at least one.",
                  .read = read,
                  .write = write});
}

void add_attention_keys(std::vector<Key>& keys) {
  const auto attention = [](auto& draft) -> auto& {
    return draft.config.attention;
  };
  const Section top(keys, "attention.", attention);
  top.add("kind", &AttentionConfig::kind, {.choices = {"nsa", "dense"}},
          "Native sparse attention, or dense causal attention in every layer.");
  top.add("dense_layers", &AttentionConfig::dense_layers, {.min = 0, .max = kMaxLayers},
          "Layers, counted from 0, that use dense attention under kind: nsa.");
  add_branches(keys);

  const auto compress = [](auto& draft) -> auto& {
    return draft.config.attention.compress;
  };
  const Section compression(keys, "attention.compress.", compress);
  compression.add("phi", &CompressConfig::phi,
                  {.choices = {"mean", "mean_mlp", "pool_mlp", "mlp_flat"}},
                  "How a block of tokens becomes one. pool_mlp has no shape that depends on rate.");
  compression.add("rate", &CompressConfig::rate, {.min = 1, .max = kMaxBlock, .unit = "tokens"},
                  "Tokens per compressed token (the stride); a stage may set its own. 1: none.");
  compression.add("overlap", &CompressConfig::overlap, {.min = 1, .max = 2},
                  "Length of a compressed block in units of rate. At rate 1 it does not matter.");
  const Section own(
      keys, "attention.compress.", [](auto& draft) -> auto& { return draft; });
  own.add("hidden", &Draft::compress_hidden, {.min = 1, .max = kMaxWidth},
          "Hidden width of phi's MLP. null: the head dimension of keys and of values.");
  compression.add("bins", &CompressConfig::bins, {.min = 1, .max = kMaxBins},
                  "Pooling logits per KV head of pool_mlp.");
  compression.add("rate1_bypass", &CompressConfig::rate1_bypass, {},
                  "At rate 1 phi is the identity.");
  compression.add("rope", &CompressConfig::rope, {.choices = {"after", "before", "none"}},
                  "Whether compressed keys are rotated after phi, before it, or not at all.");
  compression.add("position", &CompressConfig::position, {.choices = {"start", "center", "end"}},
                  "Where in its block a compressed key stands when it is rotated.");

  const auto select = [](auto& draft) -> auto& {
    return draft.config.attention.select;
  };
  const Section selection(keys, "attention.select.", select);
  selection.add("block", &SelectConfig::block, {.min = 1, .max = kMaxBlock, .unit = "tokens"},
                "Tokens of a selection block.");
  selection.add("top_n", &SelectConfig::top_n, {.min = 1, .max = kMaxBlocks, .unit = "blocks"},
                "Blocks that a query attends to, forced ones included.");
  selection.add("initial", &SelectConfig::initial, {.min = 0, .max = kMaxBlocks, .unit = "blocks"},
                "Forced blocks at the start of the document.");
  selection.add("local", &SelectConfig::local, {.min = 1, .max = kMaxBlocks, .unit = "blocks"},
                "Forced blocks up to the query's own, which counts.");
  top.add("window", &AttentionConfig::window, {.min = 1, .max = kMaxSeqLen, .unit = "tokens"},
          "Keys of the window branch, the query's own included.");
  top.add("share_kv", &AttentionConfig::share_kv, {},
          "One pair of K and V for the three branches in place of three pairs.");
}

}  // namespace

void add_model_keys(std::vector<Key>& keys) {
  const Section section(
      keys, "model.", [](auto& draft) -> auto& { return draft.config.model; });
  const Section own(
      keys, "model.", [](auto& draft) -> auto& { return draft; });
  std::vector<std::string> presets = preset_names();
  presets.insert(presets.begin(), "null");
  section.add("preset", &ModelConfig::preset, {.none = "null", .shared = false},
              join_or(presets) + ": sizes of the model; keys beside it override it.");
  section.add("vocab_size", &ModelConfig::vocab_size, {.min = 2, .max = kMaxVocabulary},
              "Tokens of the vocabulary; at least the tokenizer's.");
  section.add("layers", &ModelConfig::layers, {.min = 1, .max = kMaxLayers}, "Decoder layers.");
  section.add("hidden", &ModelConfig::hidden, {.min = 1, .max = kMaxWidth},
              "Width of the residual stream.");
  section.add("heads", &ModelConfig::heads, {.min = 1, .max = kMaxHeads}, "Query heads.");
  section.add("kv_heads", &ModelConfig::kv_heads, {.min = 1, .max = kMaxHeads},
              "Key and value heads; divides heads.");
  own.add("head_dim", &Draft::head_dim, {.min = 1, .max = kMaxWidth},
          "Channels of a query or key head. null: hidden / heads.");
  own.add("v_head_dim", &Draft::v_head_dim, {.min = 1, .max = kMaxWidth},
          "Channels of a value head. null: head_dim.");
  section.add("ffn", &ModelConfig::ffn, {.min = 1, .max = kMaxWidth},
              "Hidden width of the SwiGLU MLP.");
  section.add("rope_theta", &ModelConfig::rope_theta, {.min = 0, .open = true},
              "Base of the rotary angles.");
  own.add("rope_dim", &Draft::rope_dim, {.min = 0, .max = kMaxWidth},
          "Rotated channels of a head, even; 0: no rotation. null: head_dim.");
  section.add("norm_eps", &ModelConfig::norm_eps, {.min = 0, .open = true},
              "Added to the mean square in RMSNorm.");
  section.add("qk_norm", &ModelConfig::qk_norm, {}, "RMSNorm on queries and keys of each head.");
  section.add("tie_embeddings", &ModelConfig::tie_embeddings, {},
              "The LM head is the embedding's matrix.");
  section.add("init_std", &ModelConfig::init_std, {.min = 0, .open = true},
              "Standard deviation of the initial matrices. Narrow models learn sooner with about "
              "1 / sqrt(hidden).");
  keys.push_back(later_key("model.init_from", {"null"}, "path, or null",
                           "Weights to start from: a folder of safetensors or a checkpoint."));
  add_attention_keys(keys);
}

}  // namespace nsa::settings
