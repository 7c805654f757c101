#include <gtest/gtest.h>

#include "config/schema.h"
#include "yaml_file.h"

namespace nsa {
namespace {

class BadValue : public testing::TestWithParam<BadCase> {};

TEST_P(BadValue, IsRefusedWithWhatWasFoundAndWanted) {
  EXPECT_EQ(refusal_of(GetParam().text), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Types, BadValue,
    testing::Values(
        BadCase{"TextForANumber", "model: {layers: many}\n",
                "run.yaml:2:17: model.layers is many; it must be a whole number, at least 1 and at "
                "most 4096"},
        BadCase{"QuotedNumber", "model: {layers: '2'}\n",
                "run.yaml:2:17: model.layers is \"2\"; it must be a whole number, at least 1 and "
                "at most 4096"},
        BadCase{"FloatForAWholeNumber", "model: {layers: 2.0}\n",
                "run.yaml:2:17: model.layers is 2.0; it must be a whole number, at least 1 and at "
                "most 4096"},
        BadCase{"ListForAScalar", "model:\n  layers: [2]\n",
                "run.yaml:3:11: model.layers is a list; it must be a whole number, at least 1 and "
                "at most 4096"},
        BadCase{"MapForAScalar", "model: {layers: {a: 2}}\n",
                "run.yaml:2:17: model.layers is a map; it must be a whole number, at least 1 and "
                "at most 4096"},
        BadCase{"NullForAScalar", "model:\n  layers:\n",
                "run.yaml:3:3: model.layers is null; it must be a whole number, at least 1 and at "
                "most 4096"},
        BadCase{"TooManyDigits", "run: {seed: 99999999999999999999}\n",
                "run.yaml:2:13: run.seed is 99999999999999999999; it must be a whole number from 0 "
                "to 2^64 - 1"},
        BadCase{"NegativeSeed", "run: {seed: -1}\n",
                "run.yaml:2:13: run.seed is -1; it must be a whole number from 0 to 2^64 - 1"},
        BadCase{"NotANumber", "optim: {lr: .nan}\n",
                "run.yaml:2:13: optim.lr is .nan; it must be a number, greater than 0"},
        BadCase{"Infinity", "optim: {lr: inf}\n",
                "run.yaml:2:13: optim.lr is inf; it must be a number, greater than 0"},
        BadCase{"YesForTrue", "model: {qk_norm: yes}\n",
                "run.yaml:2:18: model.qk_norm is yes; it must be true or false"},
        BadCase{"NumberForABool", "eval: {at_start: 1}\n",
                "run.yaml:2:18: eval.at_start is 1; it must be true or false"},
        BadCase{"SuffixOnAContextLength", "train: {seq_len: 8K}\n",
                "run.yaml:2:18: train.seq_len is 8K; it must be a whole number, at least 1 and at "
                "most 1073741824"},
        BadCase{"SuffixThatLeavesAFraction", "train: {tokens: 1.2345K}\n",
                "run.yaml:2:17: train.tokens is 1.2345K; it must be a whole number (K, M, B: "
                "thousands, millions, billions), at least 1 and at most 1e+18"},
        BadCase{"LowerCaseSuffix", "train: {tokens: 5m}\n",
                "run.yaml:2:17: train.tokens is 5m; it must be a whole number (K, M, B: thousands, "
                "millions, billions), at least 1 and at most 1e+18"},
        BadCase{"Duration", "run: {max_minutes: 90x}\n",
                "run.yaml:2:20: run.max_minutes is 90x; it must be minutes, or a duration such as "
                "90m or 2h, greater than 0"},
        BadCase{"OneBeta", "optim: {betas: [0.9]}\n",
                "run.yaml:2:16: optim.betas is a list of 1 value(s); it must be one of two numbers "
                "such as "
                "[0.9, 0.95]"},
        BadCase{"ListInAList", "attention: {dense_layers: [[1]]}\n",
                "run.yaml:2:28: attention.dense_layers has a list as an element; its elements must "
                "be plain values"},
        BadCase{"StagesThatAreNoList", "schedule: {stages: 5}\n",
                "run.yaml:2:20: schedule.stages is 5; it must be a list of maps such as [{from: 0, "
                "seq_len: 2048}]"},
        BadCase{"AStageThatIsNoMap", "schedule: {stages: [5]}\n",
                "run.yaml:2:21: schedule.stages[0] is 5; it must be a map such as {from: 0, "
                "seq_len: 2048}"},
        BadCase{"AStageWithoutFrom", "schedule: {stages: [{rate: 8}]}\n",
                "run.yaml:2:21: schedule.stages[0] has no from; say the step (or tokens, 500M) it "
                "begins at"},
        BadCase{"RateOfAStage", "schedule: {stages: [{from: 0, rate: fast}]}\n",
                "run.yaml:2:37: schedule.stages[0].rate is fast; it must be a whole number, at "
                "least 1 and at most 16777216, or auto"},
        BadCase{"NullForAuto", "train: {micro_batch: null}\n",
                "run.yaml:2:9: train.micro_batch is null; it must be a whole number, at least 1 "
                "and at most 2147483647, or auto"}),
    case_name);

INSTANTIATE_TEST_SUITE_P(
    Ranges, BadValue,
    testing::Values(
        BadCase{"NoLayers", "model: {layers: 0}\n",
                "run.yaml:2:17: model.layers is 0; it must be at least 1 and at most 4096"},
        BadCase{"NoRate", "optim: {lr: 0}\n",
                "run.yaml:2:13: optim.lr is 0; it must be greater than 0"},
        BadCase{"BetaOfOne", "optim: {betas: [0.9, 1]}\n",
                "run.yaml:2:22: optim.betas is 1; it must be at least 0 and at most 0.9999999"},
        BadCase{"OverlapOfThree", "attention: {compress: {overlap: 3}}\n",
                "run.yaml:2:33: attention.compress.overlap is 3; it must be at least 1 and at most "
                "2"},
        BadCase{"NoLocalBlock", "attention: {select: {local: 0}}\n",
                "run.yaml:2:29: attention.select.local is 0; it must be at least 1 and at most "
                "65536"},
        BadCase{"NegativeInitial", "attention: {select: {initial: -1}}\n",
                "run.yaml:2:31: attention.select.initial is -1; it must be at least 0 and at most "
                "65536"},
        BadCase{"NoWindow", "attention: {window: 0}\n",
                "run.yaml:2:21: attention.window is 0; it must be at least 1 and at most "
                "1073741824"},
        BadCase{"NoBins", "attention: {compress: {bins: 0}}\n",
                "run.yaml:2:30: attention.compress.bins is 0; it must be at least 1 and at most "
                "65536"},
        BadCase{"RatioAboveOne", "schedule: {lr: {min_ratio: 1.5}}\n",
                "run.yaml:2:28: schedule.lr.min_ratio is 1.5; it must be at least 0 and at most "
                "1"},
        BadCase{"StepsBeyondAllRuns", "schedule: {lr: {warmup: 2000000000}}\n",
                "run.yaml:2:25: schedule.lr.warmup is 2000000000; it must be at least 0 and at "
                "most 1073741824"}),
    case_name);

INSTANTIATE_TEST_SUITE_P(
    Words, BadValue,
    testing::Values(
        BadCase{"Phi", "attention: {compress: {phi: max}}\n",
                "run.yaml:2:29: attention.compress.phi is max; it must be mean, mean_mlp, pool_mlp "
                "or mlp_flat"},
        BadCase{"Rope", "attention: {compress: {rope: x}}\n",
                "run.yaml:2:30: attention.compress.rope is x; it must be after, before or none"},
        BadCase{"Position", "attention: {compress: {position: x}}\n",
                "run.yaml:2:34: attention.compress.position is x; it must be start, center or "
                "end"},
        BadCase{"Branch", "attention: {branches: [windows]}\n",
                "run.yaml:2:24: attention.branches is windows; it must be compressed, selected or "
                "window"},
        BadCase{
            "NoBranch", "attention: {branches: []}\n",
            "run.yaml:2:23: attention.branches is an empty list; it must be a list of at least one "
            "branch"},
        BadCase{"BranchTwice", "attention: {branches: [window, window]}\n",
                "run.yaml:2:23: attention.branches is a list; it must be a list that names window "
                "once"},
        BadCase{"Signal", "signals: {save: [FOO]}\n",
                "run.yaml:2:18: signals.save is FOO; it must be TERM, INT, HUP, QUIT, USR1 or "
                "USR2"},
        BadCase{"Preset", "model: {preset: big}\n",
                "run.yaml:2:17: model.preset is big; it must be tiny, 110m, 350m, 1b, 3b or 7b"},
        BadCase{"Device", "run: {device: gpu}\n",
                "run.yaml:2:15: run.device is gpu; it must be auto, cpu, cuda or cuda:N"},
        BadCase{"DeviceNumber", "run: {device: \"cuda:x\"}\n",
                "run.yaml:2:15: run.device is cuda:x; it must be auto, cpu, cuda or cuda:N"}),
    case_name);

TEST(BadDataValue, WordsOfTheDataAreListed) {
  EXPECT_EQ(refusal_of("", {"data.format=csv"}),
            "override 1: data.format is csv; it must be auto, nsa, llmc or megatron");
  EXPECT_EQ(refusal_of("", {"data.doc_sep.where=between"}),
            "override 1: data.doc_sep.where is between; it must be before or after");
  EXPECT_EQ(refusal_of("", {"data.doc_sep.id=-1"}),
            "override 1: data.doc_sep.id is -1; it must be at least 0 and at most 2147483647");
}

struct LaterCase {
  std::string key;
  std::string value;
};
class OfAnotherVersion : public testing::TestWithParam<LaterCase> {};

TEST_P(OfAnotherVersion, IsRefusedNotIgnored) {
  const auto& [key, value] = GetParam();
  const std::string message = refusal_of("", {key + "=" + value});
  EXPECT_EQ(message.find("override 1: " + key), 0U) << message;
  EXPECT_NE(message.find("is not in this version"), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(
    Table, OfAnotherVersion,
    testing::Values(LaterCase{"run.deterministic", "false"},
                    LaterCase{"data.mix", "[{path: x, weight: 1}]"},
                    LaterCase{"data.format", "llmq"}, LaterCase{"data.format", "jsonl"},
                    LaterCase{"data.text_key", "body"}, LaterCase{"data.on_bad_line", "skip"},
                    LaterCase{"model.init_from", "x"}, LaterCase{"optim.name", "muon"},
                    LaterCase{"precision.compute", "fp16"}, LaterCase{"precision.master", "bf16"},
                    LaterCase{"precision.grad_accum", "bf16"}, LaterCase{"parallel.ranks", "2"},
                    LaterCase{"parallel.zero", "2"}, LaterCase{"parallel.backend", "nccl"},
                    LaterCase{"parallel.timeout_s", "5"}, LaterCase{"parallel.overlap", "false"},
                    LaterCase{"checkpoint.async", "true"},
                    LaterCase{"checkpoint.export_last", "hf"}, LaterCase{"guard.loss_z", "6"},
                    LaterCase{"guard.grad_z", "6"}, LaterCase{"guard.window", "64"},
                    LaterCase{"log.tensorboard", "true"}));

TEST(OfAnotherVersion, EveryKeyOfIsRefused) {
  std::int64_t keys = 0;
  for (const settings::Key& key : settings::schema()) {
    if (key.doc.find("Not in this version") == std::string::npos) continue;
    ++keys;
    const std::string message = refusal_of("", {key.rules.name + "=another"});
    EXPECT_NE(message.find("another is not in this version"), std::string::npos) << message;
  }
  EXPECT_GT(keys, 15);
}

TEST(OfAnotherVersion, ARunThatIsNotDeterministicIsToldWhy) {
  EXPECT_EQ(refusal_of("", {"run.deterministic=false"}),
            "override 1: run.deterministic: false is not in this version: every run is "
            "deterministic; leave it at true");
}

TEST(OfAnotherVersion, IsAcceptedAtItsDefault) {
  EXPECT_NO_THROW(
      config_of("run: {deterministic: true}\n"
                "model: {init_from: null}\n"
                "parallel: {ranks: auto, zero: 1, backend: auto, timeout_s: 600, overlap: true}\n"
                "guard: {loss_z: 0, grad_z: 0, window: 128}\n"
                "log: {tensorboard: false, gpu_every: 0, peak_tflops: auto}\n"));
}

TEST(OfAnotherVersion, OneRankIsThisVersion) {
  EXPECT_NO_THROW(config_of("parallel: {ranks: 1}\n"));
}

}  // namespace
}  // namespace nsa
