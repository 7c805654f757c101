#include "train/checkpoint.h"

#include <filesystem>
#include <functional>

#include <gtest/gtest.h>

#include "core/error.h"
#include "support/temp_folder.h"
#include "train/stored_model.h"

namespace nsa {
namespace {

namespace fs = std::filesystem;
using test::StoredModel;
using test::TempFolder;

/// The message of the Error (code 4) that `body` throws.
std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kCheckpoint);
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

TEST(Checkpoint, ComesBackBitForBit) {
  const TempFolder folder;
  StoredModel saved;
  saved.scramble(3);
  const RunState state = test::some_state(17);
  const fs::path path = save_checkpoint(folder.path(), state, saved.store, *saved.backend.device);
  EXPECT_EQ(path.filename(), "step_00000017");

  StoredModel loaded;
  const Manifest manifest = verify_checkpoint(path);
  check_same_model(manifest, loaded.store);
  load_checkpoint(path, manifest, loaded.store, *loaded.backend.device);
  EXPECT_EQ(manifest.state, state);
  EXPECT_EQ(StoredModel::copy(loaded.store.master()), StoredModel::copy(saved.store.master()));
  EXPECT_EQ(StoredModel::copy(loaded.store.weights()), StoredModel::copy(saved.store.weights()));
  EXPECT_EQ(StoredModel::copy(loaded.store.m()), StoredModel::copy(saved.store.m()));
  EXPECT_EQ(StoredModel::copy(loaded.store.v()), StoredModel::copy(saved.store.v()));
  EXPECT_EQ(loaded.store.updates(), saved.store.updates());
}

TEST(Checkpoint, MomentsInBf16ComeBackBitForBitAndTakeLessRoom) {
  const TempFolder folder;
  const Layout layout(test::small_config());
  Backend backend = make_backend("cpu", 1);
  const auto bytes_of = [](const Tensor& flat) {
    const char* data = static_cast<const char*>(flat.data());
    return std::string(data, static_cast<std::size_t>(flat.bytes()));
  };
  ParameterStore saved(layout, backend, DType::kF32, {.bf16_moments = true});
  ASSERT_EQ(saved.m().bytes(), 2 * layout.size());
  for (const Tensor& flat : {saved.m(), saved.v()}) {
    for (std::int64_t i = 0; i < flat.size(); ++i) {
      static_cast<std::uint16_t*>(flat.data())[i] = static_cast<std::uint16_t>(3 * i + 1);
    }
  }
  const fs::path path = save_checkpoint(folder.path(), {}, saved, *backend.device);
  EXPECT_LE(fs::file_size(path / "rank_00000.bin"), static_cast<std::uintmax_t>(8 * layout.size()));

  ParameterStore loaded(layout, backend, DType::kF32, {.bf16_moments = true});
  const Manifest manifest = verify_checkpoint(path);
  check_same_model(manifest, loaded);
  load_checkpoint(path, manifest, loaded, *backend.device);
  for (const Parameter& parameter : layout.parameters()) {
    const std::int64_t begin = layout.begin(parameter);
    const std::int64_t end = begin + parameter.size();
    EXPECT_EQ(bytes_of(loaded.m().slice(begin, end)), bytes_of(saved.m().slice(begin, end)));
    EXPECT_EQ(bytes_of(loaded.v().slice(begin, end)), bytes_of(saved.v().slice(begin, end)));
  }

  const StoredModel in_fp32;
  const std::string message = refusal([&] { check_same_model(manifest, in_fp32.store); });
  EXPECT_NE(message.find("moments in bf16"), std::string::npos) << message;
  EXPECT_NE(message.find("precision.optim_states"), std::string::npos) << message;
}

TEST(Checkpoint, EqualStatesGiveEqualBytes) {
  const TempFolder first;
  const TempFolder second;
  StoredModel model;
  model.scramble(3);
  const RunState state = test::some_state(5);
  const fs::path a = save_checkpoint(first.path(), state, model.store, *model.backend.device);
  const fs::path b = save_checkpoint(second.path(), state, model.store, *model.backend.device);
  for (const char* name : {"manifest.json", "rank_00000.bin", kResolvedConfig}) {
    EXPECT_EQ(test::slurp(a / name), test::slurp(b / name)) << name;
  }
}

TEST(Checkpoint, ReplacesAnOlderOneOfTheSameStep) {
  const TempFolder folder;
  StoredModel model;
  save_checkpoint(folder.path(), test::some_state(5), model.store, *model.backend.device);
  RunState state = test::some_state(5);
  state.skipped = 77;
  const fs::path path = save_checkpoint(folder.path(), state, model.store, *model.backend.device);
  EXPECT_EQ(verify_checkpoint(path).state.skipped, 77);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1);
}

TEST(Checkpoint, AFolderThatCannotBeWrittenIsACheckpointError) {
  const TempFolder folder;
  StoredModel model;
  test::spill(folder / "ckpt", "a file where the folder should be");
  refusal([&] {
    save_checkpoint(folder / "ckpt", test::some_state(5), model.store, *model.backend.device);
  });
}

class DamagedCheckpoint : public ::testing::Test {
 protected:
  DamagedCheckpoint()
      : path_(save_checkpoint(folder_.path(), test::some_state(5), model_.store,
                              *model_.backend.device)) {}

  void expect_refused(const std::string& reason) const {
    const std::string message = refusal([this] { verify_checkpoint(path_); });
    EXPECT_NE(message.find(reason), std::string::npos) << message;
    EXPECT_NE(message.find(path_.string()), std::string::npos) << message;
  }

  TempFolder folder_;
  StoredModel model_;
  fs::path path_;
};

TEST_F(DamagedCheckpoint, OneFlippedBitIsFound) {
  std::string bytes = test::slurp(path_ / "rank_00000.bin");
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 0x10);
  test::spill(path_ / "rank_00000.bin", bytes);
  expect_refused("rank_00000.bin does not match the checksum");
}

TEST_F(DamagedCheckpoint, ATruncatedFileIsFound) {
  fs::resize_file(path_ / "rank_00000.bin", fs::file_size(path_ / "rank_00000.bin") - 1);
  expect_refused("bytes, but the manifest says");
}

TEST_F(DamagedCheckpoint, AnEmptyFileIsFound) {
  fs::resize_file(path_ / "rank_00000.bin", 0);
  expect_refused("has 0 bytes");
}

TEST_F(DamagedCheckpoint, AMissingFileIsFound) {
  fs::remove(path_ / "rank_00000.bin");
  expect_refused("rank_00000.bin is missing");
}

TEST_F(DamagedCheckpoint, AnEmptyManifestIsFound) {
  fs::resize_file(path_ / "manifest.json", 0);
  expect_refused("manifest.json is not readable");
}

TEST_F(DamagedCheckpoint, AMissingManifestIsFound) {
  fs::remove(path_ / "manifest.json");
  expect_refused("manifest.json is missing");
}

TEST(CheckSameModel, NamesTheParameterWhoseShapeDiffers) {
  const TempFolder folder;
  StoredModel small;
  const fs::path path =
      save_checkpoint(folder.path(), test::some_state(5), small.store, *small.backend.device);
  Config wider = test::small_config();
  wider.model.ffn = 32;
  const StoredModel other(wider);
  const std::string message =
      refusal([&] { check_same_model(verify_checkpoint(path), other.store); });
  EXPECT_NE(message.find("24"), std::string::npos) << message;
  EXPECT_NE(message.find("32"), std::string::npos) << message;
  EXPECT_NE(message.find("parameter blocks.0."), std::string::npos) << message;
}

TEST(CheckSameModel, NamesAParameterThatIsMissing) {
  const TempFolder folder;
  StoredModel small;
  const fs::path path =
      save_checkpoint(folder.path(), test::some_state(5), small.store, *small.backend.device);
  Config normed = test::small_config();
  normed.model.qk_norm = true;
  const StoredModel other(normed);
  const std::string message =
      refusal([&] { check_same_model(verify_checkpoint(path), other.store); });
  EXPECT_NE(message.find("norm"), std::string::npos) << message;
}

}  // namespace
}  // namespace nsa
