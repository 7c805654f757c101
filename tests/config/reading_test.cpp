#include <cstdlib>

#include <gtest/gtest.h>

#include "config/presets.h"
#include "yaml_file.h"

namespace nsa {
namespace {

using Strings = std::vector<std::string>;

TEST(Reading, WhatIsLeftOutHasTheDocumentedDefault) {
  const Config config = config_of("");
  EXPECT_EQ(config.train.steps, 20000);
  EXPECT_EQ(config.train.seq_len, 2048);
  EXPECT_EQ(config.train.tokens_per_step, 524288);
  EXPECT_FALSE(config.train.micro_batch.has_value());
  EXPECT_EQ(config.model.vocab_size, 32768);
  EXPECT_EQ(config.optim.lr, 6.0e-4);
  EXPECT_EQ(config.attention.compress.phi, Phi::kPoolMlp);
  EXPECT_EQ(config.schedule.lr.warmup, (StepsOrTokens{700, false}));
  EXPECT_TRUE(config.eval.sample.prompts.empty());
  EXPECT_EQ(config.checkpoint.dir, "out/run/ckpt");
}

TEST(Reading, AnEmptySectionChangesNothing) {
  EXPECT_EQ(config_of("model:\n").model, config_of("").model);
}

TEST(Reading, NullsFollowTheOtherSizes) {
  const Config config = config_of("model: {hidden: 96, heads: 4, kv_heads: 2}\n");
  EXPECT_EQ(config.model.head_dim, 24);
  EXPECT_EQ(config.model.v_head_dim, 24);
  EXPECT_EQ(config.model.rope_dim, 24);
  EXPECT_EQ(config.attention.compress.hidden_key, 24);
}

TEST(Reading, TheHiddenWidthOfPhiFollowsEachHeadDimension) {
  const Config config = config_of("model: {head_dim: 48, v_head_dim: 32}\n");
  EXPECT_EQ(config.attention.compress.hidden_key, 48);
  EXPECT_EQ(config.attention.compress.hidden_value, 32);
}

TEST(Reading, ARotationOfZeroChannelsIsNotTheDefault) {
  EXPECT_EQ(config_of("model: {rope_dim: 0}\n").model.rope_dim, 0);
}

TEST(Reading, SuffixesCountInThousands) {
  const Config config = config_of(
      "train: {tokens: 500M, tokens_per_step: 2.048K, seq_len: 2048}\n"
      "eval: {tokens: 0.5B}\n");
  EXPECT_EQ(config.train.tokens, 500'000'000);
  EXPECT_EQ(config.train.tokens_per_step, 2048);
  EXPECT_EQ(config.eval.tokens, 500'000'000);
}

TEST(Reading, AWarmUpWithASuffixIsInTokens) {
  EXPECT_EQ(config_of("schedule: {lr: {warmup: 2M}}\n").schedule.lr.warmup,
            (StepsOrTokens{2'000'000, true}));
}

TEST(Reading, DurationsBecomeMinutes) {
  const Config config = config_of("run: {max_minutes: 1h30m}\ncheckpoint: {every_minutes: 30s}\n");
  EXPECT_EQ(config.run.max_minutes, 90.0);
  EXPECT_EQ(config.checkpoint.every_minutes, 0.5);
}

TEST(Reading, ABareDurationIsMinutes) {
  EXPECT_EQ(config_of("run: {max_minutes: 7}\n").run.max_minutes, 7.0);
}

TEST(Reading, AnyBranchesMayBeOn) {
  const AttentionConfig attention =
      config_of("attention: {branches: [window, compressed]}\n").attention;
  EXPECT_TRUE(attention.compressed);
  EXPECT_FALSE(attention.selected);
  EXPECT_TRUE(attention.window_branch);
}

TEST(Reading, WordsBecomeEnums) {
  const Config config = config_of(
      "attention: {kind: dense, compress: {phi: mlp_flat, rope: before, position: end}}\n"
      "schedule: {lr: {kind: wsd, shape: sqrt}}\nmemory: {recompute: selective}\n");
  EXPECT_EQ(config.attention.kind, AttentionKind::kDense);
  EXPECT_EQ(config.attention.compress.phi, Phi::kMlpFlat);
  EXPECT_EQ(config.attention.compress.rope, CompressRope::kBefore);
  EXPECT_EQ(config.attention.compress.position, CompressPosition::kEnd);
  EXPECT_EQ(config.schedule.lr.kind, LrKind::kWsd);
  EXPECT_EQ(config.schedule.lr.shape, DecayShape::kSqrt);
  EXPECT_EQ(config.memory.recompute, Recompute::kSelective);
}

TEST(Reading, AnEnvironmentVariableStandsForItsText) {
  ASSERT_EQ(setenv("NSA_TEST_NAME", "blue", 1), 0);
  EXPECT_EQ(config_of("run:\n  name: run-${env:NSA_TEST_NAME}-1\n").run.name, "run-blue-1");
}

TEST(Reading, AQuotedVariableMayBeANumber) {
  ASSERT_EQ(setenv("NSA_TEST_LAYERS", "3", 1), 0);
  EXPECT_EQ(config_of("model: {layers: \"${env:NSA_TEST_LAYERS}\"}\n").model.layers, 3);
}

TEST(Reading, PathsCountFromTheFileWhereverTheProgramRuns) {
  const YamlFolder folder;
  const std::string path =
      folder.write("run.yaml",
                   "data: {train: [../a/*.bin, /b/c.bin], val: v.bin}\n"
                   "tokenizer: {model: tok.model}\ncheckpoint: {resume: ckpt/step_1}\n");
  const Config config = parse_config(path, {}, nullptr);
  const auto beside = [&folder](const std::string& name) {
    return std::filesystem::path(folder.file(name)).lexically_normal().string();
  };
  EXPECT_EQ(config.data.train, (Strings{beside("../a/*.bin"), "/b/c.bin"}));
  EXPECT_EQ(config.data.val, Strings{beside("v.bin")});
  EXPECT_EQ(config.tokenizer.model, beside("tok.model"));
  EXPECT_EQ(config.checkpoint.resume, beside("ckpt/step_1"));
}

TEST(Reading, TheOutputFolderStaysAsWritten) {
  const Config config = config_of("run: {out_dir: o/x}\ncheckpoint: {dir: saves}\n");
  EXPECT_EQ(config.run.out_dir, "o/x");
  EXPECT_EQ(config.checkpoint.dir, "o/x/saves");
  EXPECT_EQ(config.log.metrics, "metrics.jsonl");
}

TEST(Reading, AnAbsoluteCheckpointFolderIsKept) {
  EXPECT_EQ(config_of("checkpoint: {dir: /big/disk}\n").checkpoint.dir, "/big/disk");
}

TEST(Reading, ResumeKeepsItsWords) {
  EXPECT_EQ(config_of("checkpoint: {resume: must}\n").checkpoint.resume, "must");
}

TEST(Reading, ASampleMayBeOneText) {
  const SampleConfig sample =
      config_of("tokenizer: {model: t}\neval: {sample: Once upon}\n").eval.sample;
  EXPECT_EQ(sample.prompts, Strings{"Once upon"});
  EXPECT_EQ(sample.tokens, 64);
}

TEST(Reading, ASampleMayBeAList) {
  EXPECT_EQ(config_of("tokenizer: {model: t}\neval: {sample: [a, b]}\n").eval.sample.prompts,
            (Strings{"a", "b"}));
}

TEST(Reading, ASampleMayBeAMap) {
  const SampleConfig sample =
      config_of(
          "tokenizer: {model: t}\n"
          "eval: {sample: {prompts: [a], tokens: 5, temperature: 0, top_k: 0}}\n")
          .eval.sample;
  EXPECT_EQ(sample, (SampleConfig{.prompts = {"a"}, .tokens = 5, .temperature = 0, .top_k = 0}));
}

TEST(Reading, NoSampleMayBeNull) {
  EXPECT_TRUE(config_of("eval: {sample: null}\n").eval.sample.prompts.empty());
}

TEST(Reading, CudaIsLegalSyntax) {
  EXPECT_EQ(config_of("run: {device: \"cuda:3\"}\n").run.device, "cuda:3");
}

TEST(Preset, TinyHasItsSizes) {
  const ModelConfig model = config_of("model: {preset: tiny}\n").model;
  EXPECT_EQ(model.hidden, 128);
  EXPECT_EQ(model.layers, 4);
  EXPECT_EQ(model.heads, 4);
  EXPECT_EQ(model.kv_heads, 1);
  EXPECT_EQ(model.head_dim, 32);
  EXPECT_EQ(model.ffn, 344);
  EXPECT_EQ(model.vocab_size, 2048);
}

TEST(Preset, KeysBesideItWinEvenAboveIt) {
  const ModelConfig model = config_of("model: {heads: 8, preset: 350m, head_dim: 32}\n").model;
  EXPECT_EQ(model.heads, 8);
  EXPECT_EQ(model.head_dim, 32);
  EXPECT_EQ(model.layers, 24);
}

TEST(Preset, EachIsLegalAndHasTheVocabularyOfItsTable) {
  for (const std::string& name : preset_names()) {
    const ModelConfig model = config_of("model: {preset: " + name + "}\n").model;
    EXPECT_EQ(model.vocab_size, name == "tiny" ? 2048 : 32768) << name;
    EXPECT_EQ(model.heads * model.head_dim, model.hidden + (name == "3b" ? 1536 : 0)) << name;
  }
}

TEST(Preset, AnUnknownNameHasNone) {
  EXPECT_EQ(find_preset("13b"), nullptr);
}

}  // namespace
}  // namespace nsa
