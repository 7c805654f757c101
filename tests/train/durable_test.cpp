#include "train/durable.h"

#include <gtest/gtest.h>

#include "core/checksum.h"
#include "core/error.h"
#include "support/temp_folder.h"

namespace nsa {
namespace {

TEST(DurableFile, KeepsSizeAndChecksumOfAllPieces) {
  const test::TempFolder folder;
  DurableFile file(folder / "file");
  file.write("abc", 3);
  file.write("defg", 4);
  file.finish();
  EXPECT_EQ(test::slurp(folder / "file"), "abcdefg");
  EXPECT_EQ(file.bytes(), 7);
  EXPECT_EQ(file.checksum(), crc32(0, "abcdefg", 7));
  EXPECT_EQ(file_checksum(folder / "file"), file.checksum());
}

TEST(DurableFile, NamesThePathThatCannotBeMade) {
  const test::TempFolder folder;
  try {
    const DurableFile file(folder / "nowhere/file");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kCheckpoint);
    EXPECT_NE(std::string(error.what()).find("nowhere/file"), std::string::npos) << error.what();
  }
}

TEST(ReadFile, AFolderInTheFilesPlaceIsACheckpointError) {
  const test::TempFolder folder;
  try {
    read_file(folder.path());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kCheckpoint) << error.what();
  }
}

TEST(ReplaceFile, LeavesNothingButTheNewFile) {
  const test::TempFolder folder;
  test::spill(folder / "file", "old");
  replace_file(folder / "file", "new");
  EXPECT_EQ(test::slurp(folder / "file"), "new");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(StaleName, IsTheFirstThatIsFree) {
  const test::TempFolder folder;
  test::spill(folder / "metrics.stale-1.jsonl", "");
  EXPECT_EQ(stale_name(folder / "metrics.jsonl"), folder / "metrics.stale-2.jsonl");
}

TEST(MakeWritableFolder, RefusesAPathThatIsAFile) {
  const test::TempFolder folder;
  test::spill(folder / "file", "");
  EXPECT_THROW(make_writable_folder(folder / "file"), Error);
}

}  // namespace
}  // namespace nsa
