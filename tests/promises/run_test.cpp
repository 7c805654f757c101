// What a run promises besides its resume: it learns, it costs what it planned, it fails as told.

#include <csignal>
#include <regex>

#include <gtest/gtest.h>

#include "config/parse.h"
#include "promises/tiny_run.h"
#include "train/sampler.h"
#include "train/trainer.h"
#include "train/workshop.h"

namespace nsa::test {
namespace {

using TheRun = TinyRun;

double number_after(const std::string& text, const std::string& key) {
  const std::size_t at = text.rfind(key);
  if (at == std::string::npos) {
    ADD_FAILURE() << key << " is not in: " << text;
    return 0;
  }
  return std::stod(text.substr(at + key.size()));
}

TEST_F(TheRun, LearnsMoreThanTheFrequencies) {
  const Outcome outcome = train("run", {"train.steps=150"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::string rows = metrics("run");
  const double unigram = number_after(rows, "\"unigram_nats\":");
  const double loss = number_after(rows, "\"val_loss\":");
  EXPECT_LT(loss, unigram - 1.5) << outcome.out;
  EXPECT_NE(outcome.out.find("gain"), std::string::npos);
}

TEST_F(TheRun, RecomputeSettingsGiveTheSameBytes) {
  ASSERT_EQ(train("none").code, 0);
  ASSERT_EQ(train("selective", {"memory.recompute=selective"}).code, 0);
  ASSERT_EQ(train("full", {"memory.recompute=full"}).code, 0);
  expect_same_run("selective", "none");
  expect_same_run("full", "none");
}

TEST_F(TheRun, NothingIsAllocatedInsideAStep) {
  const Config config =
      parse_config((folder_ / "run.yaml").string(),
                   {"run.out_dir=" + out("run").string(), "data.doc_mask=true"}, nullptr);
  Trainer trainer(config);
  const Device& device = *trainer.shop().backend.device;
  const std::int64_t before = device.allocations();
  for (std::int64_t step = 0; step < 40; ++step) {
    trainer.train_step(step);
    ASSERT_EQ(device.allocations(), before) << "in step " << step;
  }
}

TEST_F(TheRun, TellsItsPeakOfMemoryBesideThePlanOnce) {
  const Outcome outcome = train("run", {"train.steps=3"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::regex line(
      "memory    peak [0-9.]+ [MG]iB, planned [0-9.]+ [MG]iB \\([+-][0-9.]+ %\\)");
  EXPECT_EQ(std::distance(std::sregex_iterator(outcome.out.begin(), outcome.out.end(), line),
                          std::sregex_iterator()),
            1)
      << outcome.out;
  EXPECT_NE(metrics("run").find(R"("kind":"memory","text":"memory    peak )"), std::string::npos);
}

TEST_F(TheRun, TheThreadCountChangesNothing) {
  setenv("OMP_NUM_THREADS", "1", 1);
  ASSERT_EQ(train("one").code, 0);
  setenv("OMP_NUM_THREADS", "3", 1);
  ASSERT_EQ(train("three").code, 0);
  unsetenv("OMP_NUM_THREADS");
  expect_same_run("three", "one");
}

TEST_F(TheRun, ValidationLossDoesNotDependOnTheMicroBatch) {
  // 416 tokens are 13 sequences of 32, and 384 are 4 of 96: both serve.
  ASSERT_EQ(train("auto", {"run.stop_after=10"}).code, 75);
  ASSERT_EQ(train("single", {"run.stop_after=10", "train.micro_batch=1"}).code, 75);
  EXPECT_NEAR(number_after(metrics("auto"), "\"val_loss\":"),
              number_after(metrics("single"), "\"val_loss\":"), 1e-4);
}

TEST_F(TheRun, TheReportNamesTheRunAndItsFolder) {
  const Outcome outcome = train("run", {"run.name=second try", "run.stop_after=1"});
  EXPECT_NE(outcome.out.find("run       second try, writes to " + out("run").string()),
            std::string::npos)
      << outcome.out;
}

TEST_F(TheRun, SamplesArePrintedAndRepeatable) {
  const Overrides sampling = {"train.steps=20",
                              "eval.sample={prompts: [the miller], tokens: 12, temperature: 0.8}"};
  const Outcome first = train("first", sampling);
  const Outcome second = train("second", sampling);
  ASSERT_EQ(first.code, 0) << first.err;
  const std::regex sample("sample 1: the miller.*");
  std::smatch found;
  ASSERT_TRUE(std::regex_search(first.out, found, sample)) << first.out;
  EXPECT_NE(second.out.find(found.str()), std::string::npos) << second.out;
}

TEST_F(TheRun, ASampleStopsAtTheTokenThatTheConfigurationCallsTheEnd) {
  // Weights of zero give every token the same logit, and of a tie the lower id is taken: 0.
  const auto sample = [this](const Overrides& overrides) {
    Overrides all = {"eval.sample={prompts: [the miller], tokens: 3, temperature: 0}"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    const Config config = parse_config((folder_ / "run.yaml").string(), all, nullptr);
    Workshop shop(config);
    const Tensor& weights = shop.store.master();
    shop.backend.device->fill_zero(weights.data(), weights.bytes());
    shop.store.publish();
    return Sampler(shop).complete(0, 0, shop.schedule.at(0));
  };
  EXPECT_GT(sample({}).size(), std::string("the miller").size());
  EXPECT_EQ(sample({"tokenizer.eos_id=0"}), "the miller");
}

TEST_F(TheRun, ANonFiniteLossExitsFiveBeforeTheWeightsAreTouched) {
  const Outcome outcome =
      train("run", {"optim.lr=1.0e+30", "optim.clip=0", "schedule.lr.warmup=0"});
  EXPECT_EQ(outcome.code, 5);
  EXPECT_NE(outcome.err.find("not finite"), std::string::npos) << outcome.err;
  EXPECT_NE(metrics("run").find("\"exit_code\":5"), std::string::npos);
}

TEST_F(TheRun, SkippedUpdatesAreCounted) {
  const Outcome outcome = train("run", {"optim.lr=1.0e+30", "optim.clip=0", "schedule.lr.warmup=0",
                                        "guard={on_nonfinite: skip, max_skips: 3}"});
  EXPECT_EQ(outcome.code, 5);
  EXPECT_NE(metrics("run").find("\"skipped\":3"), std::string::npos) << metrics("run");
  EXPECT_EQ(metrics("run").find("\"skipped\":4"), std::string::npos);
}

TEST_F(TheRun, AFailedSaveDoesNotEndTheTraining) {
  const Watch full_disk{.on_line = {}, .file_size_limit = 100'000};
  const Outcome outcome = train("run", {"train.steps=6", "checkpoint.every=2"}, full_disk);
  EXPECT_EQ(outcome.code, 4) << outcome.err;  // the last save counts
  EXPECT_NE(outcome.err.find("training goes on"), std::string::npos) << outcome.err;
  EXPECT_NE(rows("run").find("\"type\":\"train\",\"step\":6,"), std::string::npos);
}

TEST_F(TheRun, ASecondStartOfARunIsRefusedAndTheFirstGoesOn) {
  ASSERT_EQ(train("straight").code, 0);
  Outcome second;
  const Watch twice{.on_line = [&](const std::string& line, int process) {
    if (line.find(" 7/40 ") == std::string::npos) return;
    kill(process, SIGSTOP);  // it keeps the lock for as long as the second one is patient
    second = train("run", {}, {}, {"--resume", "never"});
    kill(process, SIGCONT);
    EXPECT_NE(second.err.find("is in use by process " + std::to_string(process)), std::string::npos)
        << second.err;
  }};
  EXPECT_EQ(train("run", {}, twice).code, 0);
  EXPECT_EQ(second.code, 1);
  EXPECT_EQ(second.err.find("error: "), second.err.rfind("error: ")) << second.err;
  expect_same_run("run", "straight");
}

TEST_F(TheRun, ASecondStartWaitsForAFirstThatIsLeaving) {
  Outcome second;
  const Watch leaving{.on_line = [&](const std::string& line, int process) {
    if (line.find(" 7/40 ") == std::string::npos) return;
    kill(process, SIGTERM);
    second = train("run");
  }};
  EXPECT_EQ(train("run", {}, leaving).code, 75);
  EXPECT_EQ(second.code, 0) << second.err;
}

TEST_F(TheRun, BadYamlExitsTwo) {
  spill(folder_ / "run.yaml", tiny_yaml() + "trian: {steps: 3}\n");
  const Outcome outcome = train("run");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("train"), std::string::npos) << outcome.err;
}

TEST_F(TheRun, AFlagThatIsNotBuiltExitsTwo) {
  const Outcome outcome = train("run", {}, {}, {"--selftest"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("not in this version"), std::string::npos) << outcome.err;
}

TEST_F(TheRun, APlanNeedsNoData) {
  const Outcome outcome = train("run", {"data.train=[nowhere_*.bin]"}, {}, {"--plan"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("40 steps"), std::string::npos) << outcome.out;
  EXPECT_FALSE(std::filesystem::exists(out("run")));
}

TEST_F(TheRun, MissingDataExitsThree) {
  const Outcome outcome = train("run", {"data.train=[nowhere_*.bin]"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(outcome.err.find("nowhere_"), std::string::npos) << outcome.err;
}

TEST_F(TheRun, ATokenizerLargerThanTheModelExitsTwo) {
  const Outcome outcome = train("run", {"model.vocab_size=300"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("model.vocab_size"), std::string::npos) << outcome.err;
}

TEST_F(TheRun, ATokenizerThatDidNotMakeTheTokensExitsTwo) {
  const std::string other = (folder_ / "other.model").string();
  ASSERT_EQ(run_program({std::string(NSA_BINARY_DIR) + "/nsa_tokenize", "train", "--in",
                         (folder_ / "text.jsonl").string(), "--vocab-size", "310", "--out", other})
                .code,
            0);
  const Outcome outcome = train("run", {"tokenizer.model=" + other});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("tokenizer.model is " + other), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("leave tokenizer.model out"), std::string::npos) << outcome.err;
  EXPECT_FALSE(std::filesystem::exists(out("run")));
}

TEST_F(TheRun, CheckDataPrintsTheUnigramEntropyOfTheEndRow) {
  const Outcome checked = train("run", {}, {}, {"--check-data"});
  ASSERT_EQ(checked.code, 0) << checked.err;
  ASSERT_EQ(train("run").code, 0);
  EXPECT_NEAR(number_after(checked.out, "unigram entropy "),
              number_after(metrics("run"), "\"unigram_nats\":"), 1e-8);
}

TEST_F(TheRun, EvalOnlyFindsTheLossOfTheRun) {
  ASSERT_EQ(train("run").code, 0);
  const Outcome evaluated = train("run", {}, {}, {"--eval-only"});
  ASSERT_EQ(evaluated.code, 0) << evaluated.err;
  EXPECT_EQ(number_after(evaluated.out, "val loss "),
            number_after(metrics("run"), "\"val_loss\":"));
}

TEST_F(TheRun, FreezesTheMicroBatchesItChose) {
  ASSERT_EQ(train("run", {"run.stop_after=1"}).code, 75);
  const Config frozen = parse_config((out("run") / "config.resolved.yaml").string(), {}, nullptr);
  EXPECT_EQ(frozen.precision.compute, "fp32");
  EXPECT_EQ(frozen.schedule.stages[0].micro_batch, 13);
  EXPECT_EQ(frozen.schedule.stages[1].micro_batch, 4);
  EXPECT_NE(metrics("run").find("\"micro_batch\":13,"), std::string::npos);
}

TEST_F(TheRun, TheResolvedConfigurationGivesTheSameRun) {
  ASSERT_EQ(train("first").code, 0);
  std::filesystem::copy_file(out("first") / "config.resolved.yaml", folder_ / "run.yaml",
                             std::filesystem::copy_options::overwrite_existing);
  ASSERT_EQ(train("second").code, 0);
  expect_same_run("second", "first");
}

}  // namespace
}  // namespace nsa::test
