// A disk that is full, from the start or later: the failure is reported, and what stood there
// stands.
//
// The small disks are file systems in memory, which only the superuser may mount; where that is not
// allowed, the tests say so and are skipped.

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <sys/mount.h>

#include <gtest/gtest.h>

#include "core/format.h"
#include "promises/tiny_run.h"

namespace nsa::test {
namespace {

namespace fs = std::filesystem;

const std::string kTokenize = std::string(NSA_BINARY_DIR) + "/nsa_tokenize";

/// A folder that is a disk of its own.
class SmallDisk {
 public:
  SmallDisk(fs::path path, std::int64_t bytes) : path_(std::move(path)) {
    fs::create_directories(path_);
    const std::string size = fmt::format("size={}", bytes);
    mounted_ = mount("tmpfs", path_.c_str(), "tmpfs", 0, size.c_str()) == 0;
    if (!mounted_)
      why_not_ = std::string("a tmpfs cannot be mounted here: ") + std::strerror(errno);
  }
  ~SmallDisk() {
    if (mounted_) umount2(path_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  bool mounted() const { return mounted_; }
  const std::string& why_not() const { return why_not_; }
  const fs::path& path() const { return path_; }

  /// Writes a file until there is no room left.
  void fill() const {
    std::ofstream ballast(path_ / "ballast", std::ios::binary | std::ios::app);
    const std::string page(4096, 'x');
    while (ballast << page && ballast.flush()) {
    }
  }
  void make_room() const { fs::remove(path_ / "ballast"); }

 private:
  fs::path path_;
  bool mounted_ = false;
  std::string why_not_;
};

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

class FullDisk : public TinyRun {
 protected:
  void SetUp() override {
    TinyRun::SetUp();
    if (!disk_.mounted()) GTEST_SKIP() << disk_.why_not();
  }

  /// Twelve steps of a model whose checkpoints take about 6 MB, so that three of them fit.
  Overrides large() const {
    return {"train.steps=12", "model.hidden=128", "model.ffn=320", "eval.every=0",
            "checkpoint.every=2"};
  }
  Overrides on_the_disk() const {
    Overrides overrides = large();
    overrides.push_back("checkpoint.dir=" + disk_.path().string() + "/ckpt");
    return overrides;
  }
  fs::path checkpoint(std::int64_t step) const {
    return disk_.path() / "ckpt" / fmt::format("step_{:08}", step);
  }
  /// nsa_tokenize encode of `text` into <disk>/tokens_*.
  Outcome encode(const std::string& text, const std::string& format,
                 const Watch& watch = {}) const {
    return run_program({kTokenize, "encode", "--model", (folder_ / "text.model").string(), "--in",
                        (folder_ / text).string(), "--out", (disk_.path() / "tokens").string(),
                        "--format", format},
                       watch);
  }

  SmallDisk disk_{folder_ / "disk", 20'000'000};
};

TEST_F(FullDisk, AFailedSaveIsReportedTheOlderLiveAndTheRunGoesOn) {
  // Three checkpoints and a fourth that takes their place need more room than there is.
  const Outcome outcome = train("run", on_the_disk());
  EXPECT_EQ(outcome.code, 4) << outcome.err;  // the last save failed
  EXPECT_NE(outcome.err.find("could not save, training goes on"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("No space left on device"), std::string::npos) << outcome.err;
  EXPECT_NE(metrics("run").find("\"kind\":\"save_failed\""), std::string::npos);
  EXPECT_NE(rows("run").find("\"type\":\"train\",\"step\":12,"), std::string::npos);
  EXPECT_EQ(names_in(disk_.path() / "ckpt"),
            (std::set<std::string>{"step_00000002", "step_00000004", "step_00000006"}));
  EXPECT_EQ(train("run", on_the_disk(), {}, {"--verify-ckpt"}).code, 0);

  // With room again, the same command makes up for what was not saved.
  fs::remove_all(checkpoint(2));
  Overrides fewer = on_the_disk();
  fewer.emplace_back("checkpoint.keep_last=1");
  const Outcome again = train("run", fewer);
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_NE(again.out.find("resume    step 6 of 12"), std::string::npos) << again.out;
  ASSERT_EQ(train("straight", large()).code, 0);
  EXPECT_EQ(rows("run"), rows("straight"));
  EXPECT_TRUE(slurp(checkpoint(12) / "rank_00000.bin") == tensors("straight", 12));
}

TEST_F(FullDisk, ADiskThatFillsLaterAndIsClearedCostsNoCheckpointThatStood) {
  const Watch neighbour{.on_line = [this](const std::string& line, int process) {
    kill(process, SIGSTOP);
    if (line.rfind("saved ", 0) == 0 && line.find("step_00000002") != std::string::npos) {
      disk_.fill();
    }
    if (line.find(" 9/40 ") != std::string::npos) {
      EXPECT_TRUE(fs::exists(checkpoint(2) / "manifest.json"));
      disk_.make_room();
    }
    kill(process, SIGCONT);
  }};
  Overrides longer = on_the_disk();
  longer.insert(longer.end(), {"train.steps=40", "checkpoint.keep_last=1"});
  const Outcome outcome = train("run", longer, neighbour);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("could not save, training goes on"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.out.find("step_00000040"), std::string::npos) << outcome.out;
  EXPECT_EQ(train("run", longer, {}, {"--verify-ckpt"}).code, 0);
}

TEST_F(FullDisk, NoRoomForOneCheckpointIsToldAtTheStart) {
  disk_.fill();
  const Outcome outcome = train("run", on_the_disk());
  EXPECT_EQ(outcome.code, 4);
  EXPECT_NE(outcome.err.find("make room or set checkpoint.dir"), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.out.find(" 1/12 "), std::string::npos) << outcome.out;
}

TEST_F(FullDisk, LessRoomThanKeepLastNeedsIsAWarning) {
  const Outcome outcome = train("run", on_the_disk());
  EXPECT_NE(outcome.err.find("checkpoint.keep_last = 3 needs room"), std::string::npos)
      << outcome.err;
}

TEST_F(FullDisk, ShardsThatDoNotFitLeaveTheOlderOnes) {
  spill(folder_ / "more.jsonl", grammar_jsonl(600, 12));
  for (const std::string format : {"nsa", "llmc", "megatron"}) {
    ASSERT_EQ(encode("text.jsonl", format).code, 0);
    const std::set<std::string> before = names_in(disk_.path());
    const std::string shard = slurp(disk_.path() / "tokens_00000.bin");
    disk_.fill();
    const Outcome outcome = encode("more.jsonl", format);
    disk_.make_room();
    EXPECT_EQ(outcome.code, 1) << format;
    EXPECT_NE(outcome.err.find("No space left on device"), std::string::npos) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_EQ(names_in(disk_.path()), before) << format;
    EXPECT_TRUE(slurp(disk_.path() / "tokens_00000.bin") == shard) << format;
    EXPECT_EQ(encode("more.jsonl", format).code, 0) << format;
  }
}

TEST_F(FullDisk, ATokenizerThatDoesNotFitLeavesTheOlderOne) {
  const fs::path model = disk_.path() / "text.model";
  fs::copy_file(folder_ / "text.model", model);
  disk_.fill();
  const Outcome outcome =
      run_program({kTokenize, "train", "--in", (folder_ / "text.jsonl").string(), "--vocab-size",
                   "330", "--out", model.string()});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("No space left on device"), std::string::npos) << outcome.err;
  EXPECT_EQ(names_in(disk_.path()), (std::set<std::string>{"ballast", "text.model"}));
  EXPECT_TRUE(slurp(model) == slurp(folder_ / "text.model"));
}

/// A limit on the size of files stands in for a quota; it needs no superuser.
using Quota = TinyRun;

TEST_F(Quota, ShardsBeyondItLeaveNothingBehind) {
  const Watch small{.on_line = {}, .file_size_limit = 8'192};
  const Outcome outcome = run_program(
      {kTokenize, "encode", "--model", (folder_ / "text.model").string(), "--in",
       (folder_ / "text.jsonl").string(), "--out", (folder_ / "small" / "tokens").string()},
      small);
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_NE(outcome.err.find("File too large"), std::string::npos) << outcome.err;
  EXPECT_TRUE(names_in(folder_ / "small").empty());
}

}  // namespace
}  // namespace nsa::test
