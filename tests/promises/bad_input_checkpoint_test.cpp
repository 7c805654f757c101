// A damaged checkpoint is passed over for an older one, whatever its damage, and where there is
// none left the run is refused (exit code 4) without touching anything.

#include <functional>
#include <ostream>

#include "promises/refusal.h"

namespace nsa::test {
namespace {

namespace fs = std::filesystem;

constexpr int kInterrupted = 75;

struct CheckpointFault {
  std::string name;
  std::function<void(const fs::path& file)> damage;
  std::string told;
};

// What a failing test shows of it. NOLINTNEXTLINE(readability-identifier-naming)
void PrintTo(const CheckpointFault& fault, std::ostream* out) {
  *out << fault.name;
}

void empty(const fs::path& file) {
  fs::resize_file(file, 0);
}
void cut(const fs::path& file) {
  fs::resize_file(file, fs::file_size(file) / 2);
}
void lengthen(const fs::path& file) {
  spill(file, slurp(file) + "x");
}
void flip(const fs::path& file) {
  std::string bytes = slurp(file);
  char& byte = bytes[bytes.size() / 3];
  byte = static_cast<char>(byte ^ 1);
  spill(file, bytes);
}
void remove(const fs::path& file) {
  fs::remove(file);
}
void replace_by_folder(const fs::path& file) {
  fs::remove(file);
  fs::create_directory(file);
}
void replace_by_loop(const fs::path& file) {
  fs::remove(file);
  fs::create_symlink(file.filename(), file);
}

std::vector<CheckpointFault> every_fault() {
  return {{"ZeroLength", empty, "has 0 bytes"},
          {"Truncated", cut, "but the manifest says"},
          {"TooLong", lengthen, "but the manifest says"},
          {"BitFlipped", flip, "does not match"},
          {"Missing", remove, "is missing"},
          {"AFolder", replace_by_folder, "is not a regular file"},
          {"ALinkToItself", replace_by_loop, "Too many levels of symbolic links"}};
}

/// Two checkpoints, of steps 2 and 4 of 6.
class DamagedRun : public SmallRun,
                   public ::testing::WithParamInterface<std::tuple<std::string, CheckpointFault>> {
 protected:
  static const Words& steps() {
    static const Words overrides = {"train.steps=6", "checkpoint.every=2"};
    return overrides;
  }
  void SetUp() override {
    SmallRun::SetUp();
    Words first = steps();
    first.emplace_back("run.stop_after=4");
    ASSERT_EQ(train(first).code, kInterrupted);
  }
  fs::path older() const { return out() / "ckpt/step_00000002"; }
  fs::path newer() const { return out() / "ckpt/step_00000004"; }
};

std::string damage_name(const ::testing::TestParamInfo<DamagedRun::ParamType>& info) {
  const std::string& file = std::get<0>(info.param);
  return file.substr(0, file.find_first_of("._")) + "_" + std::get<1>(info.param).name;
}

TEST_P(DamagedRun, GoesOnFromTheOlderCheckpointOrIsRefused) {
  const auto& [name, fault] = GetParam();
  fault.damage(newer() / name);
  // What is wrong with a manifest shows when it is read, not by its size.
  std::error_code ignored;
  const bool in_manifest = name == "manifest.json" && fs::is_regular_file(newer() / name, ignored);
  expect_train_refuses(
      steps(), {"--resume", newer().string()}, 4,
      {newer().string() + ": ", name, in_manifest ? "" : fault.told, "restore it from a copy"});
  expect_train_refuses(steps(), {"--verify-ckpt"}, 4, {"1 of 2 checkpoints"});

  const fs::path copy = folder_ / "copy";
  fs::copy(out(), copy, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  const Outcome resumed = train(steps());
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("passing over a damaged checkpoint: checkpoint " + newer().string()),
            std::string::npos)
      << resumed.err;
  EXPECT_NE(resumed.out.find("step 2 of 6"), std::string::npos) << resumed.out;

  fs::remove_all(out());
  fs::rename(copy, out());
  fault.damage(older() / name);
  expect_train_refuses(steps(), {}, 4, {"all 2 checkpoints", "are damaged", "--resume never"});
}

INSTANTIATE_TEST_SUITE_P(
    EveryFile, DamagedRun,
    ::testing::Combine(::testing::Values("rank_00000.bin", "config.resolved.yaml", "manifest.json"),
                       ::testing::ValuesIn(every_fault())),
    damage_name);

class OtherRun : public SmallRun {
 protected:
  void SetUp() override {
    SmallRun::SetUp();
    ASSERT_EQ(train({"run.stop_after=2"}).code, kInterrupted);
  }
};

TEST_F(OtherRun, AnotherGeometryOfTheWeightsIsRefused) {
  expect_train_refuses({"attention.compress.bins=16"}, {}, 4,
                       {"theta", "[1, 8] in the checkpoint", "[1, 16]", "restore the model"});
  expect_train_refuses({"model.layers=2"}, {}, 4, {"blocks.1", "restore the model"});
}

TEST_F(OtherRun, AnotherPrecisionIsRefused) {
  expect_train_refuses({"precision.compute=fp64"}, {}, 4,
                       {"holds fp32", "fp64", "precision.compute"});
}

TEST_F(OtherRun, OtherDataAreRefused) {
  expect_train_refuses({"data.train=" + path("val.bin")}, {}, 4,
                       {"data.train are not those of the checkpoint", "data.on_change"});
}

TEST_F(OtherRun, AFileInTheNextCheckpointsPlaceStays) {
  spill(out() / "ckpt/step_00000004", "of somebody else");
  const Outcome outcome = train();
  EXPECT_EQ(outcome.code, 4) << outcome.err;
  EXPECT_NE(outcome.err.find("not of this program"), std::string::npos) << outcome.err;
  EXPECT_EQ(slurp(out() / "ckpt/step_00000004"), "of somebody else");
  EXPECT_TRUE(fs::exists(out() / "ckpt/step_00000002/manifest.json"));
}

}  // namespace
}  // namespace nsa::test
