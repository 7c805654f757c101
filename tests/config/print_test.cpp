#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "config/schema.h"
#include "yaml_file.h"

namespace nsa {
namespace {

/// A configuration in which every key that can differ from its default does.
const char* const kEverything = R"(
run: {name: "a \"b\": # c\n\t\\", out_dir: o/x/, seed: 18446744073709551615, device: "cuda:1",
      kernels: general,
      max_minutes: 1h, stop_after: 3}
model: {preset: 350m, vocab_size: 999, layers: 3, hidden: 60, heads: 4, kv_heads: 2, head_dim: 24,
        v_head_dim: 16, ffn: 77, rope_theta: 1.0e+6, rope_dim: 8, norm_eps: 3.3e-7, qk_norm: true,
        tie_embeddings: false, init_std: 0.11}
attention:
  kind: nsa
  dense_layers: [2, 0]
  branches: [selected]
  compress: {phi: mean_mlp, rate: 8, overlap: 1, hidden: 5, bins: 16, rate1_bypass: false,
             rope: before, position: start}
  select: {block: 32, top_n: 7, initial: 2, local: 3}
  window: 100
  share_kv: true
data: {train: [a b.bin, "c:d.bin"], val: [v.bin], format: llmc, doc_mask: true, on_change: ignore,
       doc_sep: {id: 9, where: after}, shuffle: false, check_tokens: false}
tokenizer: {model: "null", eos_id: 3}
train: {seq_len: 64, tokens_per_step: 1024, micro_batch: 2, epochs: 0.1}
optim: {lr: 0.1, betas: [0.123456789012345, 0.3], eps: 1e-9, weight_decay: 0, clip: 0, z_loss: 1e-4}
schedule:
  lr: {kind: wsd, warmup: 1.234567M, min_ratio: 0, decay: 0.5, shape: cosine}
  stages:
    - {from: 0, rate: auto}
    - {from: 1.5K, seq_len: 128, rate: 16, rewarm: 4, tokens_per_step: 2048, micro_batch: 4}
precision: {compute: fp64, optim_states: bf16}
memory: {recompute: full, logits_chunks: 3, offload: optimizer}
checkpoint: {dir: deep/ck, every: 5, every_minutes: 2.5, keep_last: 1, keep_every: 10, resume: must}
signals: {stop: [HUP], save: [USR2, QUIT]}
eval: {every: 7, tokens: 12345, at_start: false,
       sample: {prompts: ["x\ny", "null", "", "🙂"], tokens: 3, temperature: 0, top_k: 1}}
guard: {on_nonfinite: skip, max_skips: 2}
log: {every: 2, metrics: m.jsonl, gpu_every: 5, peak_tflops: 312.5}
)";

Config everything() {
  const YamlFolder folder;
  return parse_config(folder.write("run.yaml", kEverything), {}, nullptr);
}

Config printed_and_read(const Config& config) {
  const YamlFolder folder;
  return parse_config(folder.write("resolved.yaml", print_config(config)), {}, nullptr);
}

TEST(Print, ReadsBackToTheSameConfig) {
  const Config config = everything();
  EXPECT_EQ(printed_and_read(config), config);
}

TEST(Print, OfDefaultsReadsBackToTheSameConfig) {
  const Config config = config_of("");
  EXPECT_EQ(printed_and_read(config), config);
}

TEST(Print, OfPhiWidthsThatDifferReadsBackToTheSameConfig) {
  const Config config = config_of("model: {head_dim: 48, v_head_dim: 32}\n");
  EXPECT_EQ(printed_and_read(config), config);
}

TEST(Print, OfAnAbsoluteCheckpointFolderReadsBackToTheSameConfig) {
  const Config config = config_of("checkpoint: {dir: /big/disk}\n");
  EXPECT_EQ(printed_and_read(config), config);
}

TEST(Print, OfALoneStageReadsBackToTheSameConfig) {
  const Config config = config_of("schedule: {stages: [{from: 0, micro_batch: 4}]}\n");
  EXPECT_EQ(printed_and_read(config), config);
  EXPECT_NE(print_config(config).find("  micro_batch: 4\n"), std::string::npos);
}

TEST(Print, OfALoneStageThatRewarmsReadsBackToTheSameConfig) {
  const Config config = config_of("schedule: {stages: [{from: 0, micro_batch: 4, rewarm: 3}]}\n");
  EXPECT_EQ(printed_and_read(config), config);
}

TEST(Print, OfAutoBesideANumberReadsBackToTheSameConfig) {
  const Config config = config_of(
      "train: {micro_batch: 4}\n"
      "schedule: {stages: [{from: 0}, {from: 5, micro_batch: auto}]}\n");
  EXPECT_EQ(printed_and_read(config), config);
}

TEST(Print, OfATextThatLooksLikeABooleanIsInQuotes) {
  EXPECT_NE(print_config(config_of("run: {name: \"true\"}\n")).find("name: \"true\""),
            std::string::npos);
}

TEST(Print, OfARepeatedPrintIsTheSameText) {
  const Config config = everything();
  EXPECT_EQ(print_config(printed_and_read(config)), print_config(config));
}

TEST(Print, HoldsEveryKey) {
  const std::string text = print_config(config_of(""));
  for (const settings::Key& key : settings::schema()) {
    const std::string leaf = key.rules.name.substr(key.rules.name.rfind('.') + 1);
    EXPECT_NE(text.find(" " + leaf + ": "), std::string::npos) << key.rules.name;
  }
}

/// Whether the test configuration leaves nothing at its default that could be forgotten.
TEST(Print, IsTestedOnEveryKeyThatMayDiffer) {
  const auto diff = config_diff(config_of(""), everything());
  std::string names;
  for (const std::string& line : diff) names += "\n" + line;
  for (const settings::Key& key : settings::schema()) {
    const bool fixed = key.doc.find("Not in this version") != std::string::npos ||
                       key.rules.name == "attention.kind" || key.rules.name == "train.tokens";
    if (fixed) continue;
    EXPECT_NE(names.find("\n" + key.rules.name + ": "), std::string::npos) << key.rules.name;
  }
}

/// The value of `name` in a section of `tree`; fails where there is none.
const settings::Value& entry(const settings::Value& tree, const std::string& name) {
  for (const settings::Value& item : tree.items) {
    if (item.name == name) return item;
  }
  ADD_FAILURE() << name << " is missing";
  return tree;
}

TEST(Tree, HasASectionForEveryKey) {
  const settings::Value tree = config_tree(config_of(""));
  EXPECT_EQ(tree.items.size(), 16U);
  const settings::Value& rate = entry(entry(entry(tree, "attention"), "compress"), "rate");
  EXPECT_EQ(rate.text, "16");
  EXPECT_FALSE(rate.quoted);
}

TEST(Tree, HasAMapForEachStage) {
  const settings::Value tree = config_tree(everything());
  const settings::Value& stages = entry(entry(tree, "schedule"), "stages");
  ASSERT_EQ(stages.items.size(), 2U);
  EXPECT_EQ(entry(stages.items[1], "micro_batch").text, "4");
}

TEST(Tree, HoldsTextsAsTheyAre) {
  const settings::Value tree = config_tree(everything());
  EXPECT_EQ(entry(entry(tree, "run"), "name").text, "a \"b\": # c\n\t\\");
  EXPECT_EQ(entry(entry(tree, "tokenizer"), "eos_id").text, "3");
}

TEST(Diff, NamesWhatChanged) {
  EXPECT_EQ(config_diff(config_of("optim: {lr: 0.001}\n"), config_of("optim: {lr: 6.0e-4}\n")),
            std::vector<std::string>{"optim.lr: 0.001 -> 0.0006"});
}

TEST(Diff, OfTheSameIsEmpty) {
  const Config config = everything();
  EXPECT_TRUE(config_diff(config, config).empty());
}

class NotShared : public testing::TestWithParam<std::string> {};

TEST_P(NotShared, LeavesTheFingerprint) {
  const Config plain = config_of("train: {steps: 100}\ntokenizer: {model: t}\n");
  const Config other = config_of("train: {steps: 100}\ntokenizer: {model: t}\n", {GetParam()});
  EXPECT_FALSE(config_diff(plain, other).empty());
  EXPECT_EQ(config_fingerprint(plain), config_fingerprint(other));
}

INSTANTIATE_TEST_SUITE_P(Table, NotShared,
                         testing::Values("run.stop_after=5", "run.device=cpu",
                                         "run.kernels=general", "run.out_dir=other",
                                         "run.name=other", "run.max_minutes=5",
                                         "train.micro_batch=1", "precision.compute=fp64",
                                         "memory.recompute=full", "checkpoint.every=7",
                                         "checkpoint.dir=elsewhere", "eval.every=9",
                                         "eval.sample=hello", "log.every=3", "data.train=y.bin"));

TEST(Fingerprint, LeavesTheMicroBatchesOfStagesOut) {
  const Config plain = config_of("schedule: {stages: [{from: 0}, {from: 5, rate: 8}]}\n");
  const Config other = config_of(
      "schedule: {stages: [{from: 0, micro_batch: 2}, {from: 5, rate: 8, micro_batch: 4}]}\n");
  EXPECT_FALSE(config_diff(plain, other).empty());
  EXPECT_EQ(config_fingerprint(plain), config_fingerprint(other));
}

class Shared : public testing::TestWithParam<std::string> {};

TEST_P(Shared, ChangesTheFingerprint) {
  EXPECT_NE(config_fingerprint(config_of("")), config_fingerprint(config_of("", {GetParam()})));
}

INSTANTIATE_TEST_SUITE_P(Table, Shared,
                         testing::Values("run.seed=5", "model.layers=3", "attention.window=64",
                                         "train.steps=7", "train.tokens_per_step=4096",
                                         "optim.lr=0.1", "optim.betas=[0.9, 0.99]",
                                         "schedule.lr.warmup=3", "data.shuffle=false",
                                         "schedule.stages=[{from: 0}, {from: 5, rate: 8}]",
                                         "schedule.stages=[{from: 0, rewarm: 2}]"));

TEST(Fingerprint, DoesNotDependOnHowThePresetWasNamed) {
  EXPECT_EQ(config_fingerprint(config_of("model: {preset: tiny}\n")),
            config_fingerprint(config_of("model: {vocab_size: 2048, hidden: 128, layers: 4, "
                                         "heads: 4, kv_heads: 1, head_dim: 32, ffn: 344}\n")));
}

TEST(Reference, IsWhatTheSchemaSays) {
  const std::string wanted = config_reference();
  const std::string path = std::string(NSA_SOURCE_DIR) + "/docs/config.md";
  std::ostringstream found;
  found << std::ifstream(path).rdbuf();
  if (found.str() != wanted) {
    const std::string update = std::string(NSA_BINARY_DIR) + "/config.md";
    std::ofstream(update) << wanted;
    FAIL() << path << " differs from the schema; copy " << update << " over it";
  }
}

}  // namespace
}  // namespace nsa
