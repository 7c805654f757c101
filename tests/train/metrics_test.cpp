#include "train/metrics.h"

#include <csignal>
#include <functional>
#include <limits>
#include <regex>
#include <sys/resource.h>

#include <gtest/gtest.h>

#include "config/parse.h"
#include "support/temp_folder.h"

namespace nsa {
namespace {

namespace fs = std::filesystem;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TrainRow some_row(std::int64_t step) {
  return {.step = step,
          .tokens = step * 1024,
          .epoch = 1,
          .loss = 3.41270000049,
          .grad_norm = 0.31,
          .lr = 5.9e-4,
          .tok_s = 468123,
          .mem_gib = 0.5,
          .data_wait = 0.003,
          .nsa = NsaRow{.geometry = {}, .density = 0.21},
          .skipped = 0};
}

/// Stands in for a full disk: writes beyond a size fail, with part of a row written.
class FileSizeLimit {
 public:
  FileSizeLimit() : action_(std::signal(SIGXFSZ, SIG_IGN)) { getrlimit(RLIMIT_FSIZE, &before_); }
  ~FileSizeLimit() {
    lift();
    std::signal(SIGXFSZ, action_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

  void set(std::int64_t bytes) const {
    const rlimit limit{.rlim_cur = static_cast<rlim_t>(bytes), .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  void lift() const { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
  void (*action_)(int);
};

class Metrics : public ::testing::Test {
 protected:
  std::string text() const { return test::slurp(path_); }
  void write_steps(std::int64_t first, std::int64_t last) const {
    MetricsFile file(path_, first - 1);
    for (std::int64_t step = first; step <= last; ++step) file.train(some_row(step));
  }
  std::int64_t lines(const fs::path& path) const {
    const std::string all = test::slurp(path);
    return std::count(all.begin(), all.end(), '\n');
  }

  test::TempFolder folder_;
  fs::path path_ = folder_ / "metrics.jsonl";
};

TEST_F(Metrics, ATrainRowIsCompactAndInOrder) {
  MetricsFile(path_, std::nullopt).train(some_row(1200));
  const std::regex expected(
      R"(\{"type":"train","step":1200,"tokens":1228800,"epoch":1,"loss":3\.4127,"grad_norm":0\.31,)"
      R"("lr":0\.00059,"tok_s":468123\.0,"mfu_model":null,"mem_gib":0\.5,"data_wait":0\.003,)"
      R"("nsa":\{"rate":16,"overlap":2,"top_n":16,"window":512,"density":0\.21\},"skipped":0,)"
      R"("wall_s":[0-9.e-]+,"time":"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z"\}\n)");
  EXPECT_TRUE(std::regex_match(text(), expected)) << text();
}

TEST_F(Metrics, UtilisationIsToldWhereAPeakIsKnown) {
  TrainRow row = some_row(3);
  row.mfu = 0.4925;
  MetricsFile(path_, std::nullopt).train(row);
  EXPECT_NE(text().find("\"mfu_model\":0.4925,"), std::string::npos) << text();
}

TEST_F(Metrics, AGpuRowHoldsWhatTheDriverTells) {
  MetricsFile file(path_, std::nullopt);
  file.gpu(4, std::nullopt);
  EXPECT_EQ(text(), "");
  file.gpu(4, DeviceHealth{.utilisation = 0.5,
                           .power_w = 612.25,
                           .power_limit_w = std::nullopt,
                           .temperature_c = std::nullopt,
                           .clock_mhz = 1755,
                           .throttle = {"power_cap"}});
  const std::regex expected(
      R"(\{"type":"gpu","step":4,"utilisation":0\.5,"power_w":612\.25,"power_limit_w":null,)"
      R"("temperature_c":null,"clock_mhz":1755\.0,"throttle":\["power_cap"\],"time":"[^"]*"\}\n)");
  EXPECT_TRUE(std::regex_match(text(), expected)) << text();
}

TEST_F(Metrics, NumbersHaveNineSignificantDigits) {
  MetricsFile(path_, std::nullopt)
      .val({.step = 5, .loss = 1.23456789123, .tokens = 77},
           {{.from = 0, .to = 8, .loss = 2.5, .tokens = 7}});
  EXPECT_EQ(text(),
            "{\"type\":\"val\",\"step\":5,\"loss\":1.23456789,\"tokens\":77,\"by_position\":[{"
            "\"from\":0,\"to\":8,\"loss\":2.5,\"tokens\":7}]}\n");
}

TEST_F(Metrics, WhatIsNotFiniteIsNullWithAFlag) {
  TrainRow row = some_row(3);
  row.loss = kNan;
  row.grad_norm = std::numeric_limits<double>::infinity();
  MetricsFile(path_, std::nullopt).train(row);
  EXPECT_NE(text().find("\"loss\":null,\"grad_norm\":null"), std::string::npos) << text();
  EXPECT_NE(text().find("\"nonfinite\":true"), std::string::npos) << text();
}

/// The object of the config row of `config`, as text.
std::string config_row(const fs::path& path, const Config& config) {
  MetricsFile(path, std::nullopt).config(7, config);
  return test::slurp(path);
}

TEST_F(Metrics, TheConfigRowIsAnObjectOfSections) {
  Config config;
  config.run.name = "first";
  const std::string row = config_row(path_, config);
  const std::string begin =
      R"({"type":"config","step":7,"fingerprint":)" + std::to_string(config_fingerprint(config)) +
      R"(,"config":{"run":{"name":"first","out_dir":"out/run","seed":1337,"device":"auto",)" +
      R"("kernels":"auto","max_minutes":null,"stop_after":null,"deterministic":true},"model":{)";
  EXPECT_EQ(row.substr(0, begin.size()), begin);
}

TEST_F(Metrics, TheConfigRowKeepsTextsAsText) {
  Config config;
  config.run.name = "true";
  config.run.out_dir = "12";
  EXPECT_NE(config_row(path_, config).find(R"({"name":"true","out_dir":"12",)"), std::string::npos);
}

TEST_F(Metrics, TheConfigRowHoldsLargeAndSmallNumbers) {
  Config config;
  config.run.seed = 18446744073709551615U;
  config.optim.eps = 1e-9;
  const std::string row = config_row(path_, config);
  EXPECT_NE(row.find(R"("seed":18446744073709551615,)"), std::string::npos) << row;
  EXPECT_NE(row.find(R"("betas":[0.9,0.95],"eps":1e-09,)"), std::string::npos) << row;
}

TEST_F(Metrics, TheConfigRowHasAMapForEachStage) {
  Config config;
  config.schedule.stages = {
      {.from = {}, .seq_len = 64, .rate = 4, .tokens_per_step = 512, .micro_batch = 8},
      {.from = {1500, true}, .seq_len = 128, .rate = 8, .tokens_per_step = 512, .micro_batch = {}}};
  const std::string row = config_row(path_, config);
  EXPECT_NE(row.find(R"("stages":[{"from":0,"seq_len":64,"rate":4,"tokens_per_step":512,)"
                     R"("micro_batch":8,"rewarm":0},{"from":"1.500K","seq_len":128,"rate":8,)"
                     R"("tokens_per_step":512,"micro_batch":"auto","rewarm":0}])"),
            std::string::npos)
      << row;
}

TEST_F(Metrics, AConfigRowWithBytesThatAreNoUtf8IsWritten) {
  Config config;
  config.run.name = "a\xff";
  EXPECT_EQ(config_row(path_, config).find(R"({"type":"config","step":7,)"), 0U);
}

TEST_F(Metrics, TheEndRowSaysHowItEnded) {
  MetricsFile(path_, std::nullopt).end(40, "done", 0, 2.5, std::nullopt);
  EXPECT_EQ(text(),
            "{\"type\":\"end\",\"status\":\"done\",\"exit_code\":0,\"step\":40,\"val_loss\":2.5,"
            "\"unigram_nats\":null}\n");
}

TEST_F(Metrics, AResumeMovesLaterRowsAside) {
  write_steps(1, 10);
  const MetricsFile resumed(path_, 7);
  EXPECT_EQ(lines(path_), 7);
  EXPECT_EQ(lines(folder_ / "metrics.stale-1.jsonl"), 3);
  EXPECT_NE(test::slurp(folder_ / "metrics.stale-1.jsonl").find("\"step\":8,"), std::string::npos);
}

TEST_F(Metrics, ASecondStaleFileDoesNotReplaceTheFirst) {
  write_steps(1, 10);
  write_steps(8, 10);
  const MetricsFile resumed(path_, 9);
  EXPECT_EQ(lines(folder_ / "metrics.stale-1.jsonl"), 3);
  EXPECT_EQ(lines(folder_ / "metrics.stale-2.jsonl"), 1);
}

TEST_F(Metrics, ATornLastLineIsDropped) {
  write_steps(1, 3);
  const std::string whole = text();
  test::spill(path_, whole + R"({"type":"train","step":3,"tok)");
  const MetricsFile resumed(path_, 3);
  EXPECT_EQ(text(), whole);
}

TEST_F(Metrics, ANewRunMovesTheWholeFileAside) {
  write_steps(1, 3);
  const MetricsFile fresh(path_, std::nullopt);
  EXPECT_EQ(text(), "");
  EXPECT_EQ(lines(folder_ / "metrics.stale-1.jsonl"), 3);
}

TEST_F(Metrics, WallTimeGoesOnFromWhatWasBefore) {
  MetricsFile file(path_, std::nullopt, 1000);
  EXPECT_GE(file.wall_seconds(), 1000);
  file.train(some_row(1));
  EXPECT_NE(text().find("\"wall_s\":1000"), std::string::npos) << text();
}

TEST_F(Metrics, RowsThatAFullDiskDoesNotTakeWaitAndComeOnce) {
  const fs::path whole = folder_ / "whole.jsonl";
  const auto write_all = [](MetricsFile& file, const std::function<void(std::int64_t)>& before) {
    for (std::int64_t step = 1; step <= 9; ++step) {
      before(step);
      file.val({.step = step, .loss = 0.5, .tokens = 7}, {});
    }
  };
  MetricsFile undisturbed(whole, std::nullopt);
  write_all(undisturbed, [](std::int64_t) {});
  const auto row_bytes = static_cast<std::int64_t>(fs::file_size(whole)) / 9;

  MetricsFile file(path_, std::nullopt);
  // Full in the middle of row 3, with room again from row 6 on.
  const FileSizeLimit limit;
  write_all(file, [&](std::int64_t step) {
    if (step == 3) limit.set(2 * row_bytes + row_bytes / 2);
    if (step == 6) limit.lift();
  });
  EXPECT_EQ(text(), test::slurp(whole));
}

TEST_F(Metrics, EachRowIsThereWhenTheCallReturns) {
  MetricsFile file(path_, std::nullopt);
  file.train(some_row(1));
  EXPECT_EQ(lines(path_), 1);
}

}  // namespace
}  // namespace nsa
