#include "data/atomic_file.h"

#include <cerrno>
#include <utility>

#include "support/errors.h"
#include "support/files.h"

namespace nsa::test {
namespace {

namespace fs = std::filesystem;

TEST(AtomicFile, AppearsWithAllItsBytesAtCommit) {
  const TempFolder folder;
  const std::string path = folder.file("deep/er/file");
  AtomicFile file(path);
  file.write("0123", 4);
  file.write_at(1, "ab", 2);
  file.write("45", 2);
  EXPECT_FALSE(fs::exists(path));
  file.commit();
  EXPECT_EQ(read_bytes(path), "0ab345");
  EXPECT_FALSE(fs::exists(path + ".partial"));
}

TEST(AtomicFile, LeavesNothingWithoutCommit) {
  const TempFolder folder;
  {
    AtomicFile file(folder.file("a"));
    file.write("x", 1);
    file.close();
    const AtomicFile moved(std::move(file));
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(AtomicFile, TakesNoDevicesPlace) {
  const TempFolder folder;
  const std::string device = folder.file("device");
  fs::create_symlink("/dev/null", device);
  expect_error(ExitCode::kRuntime, {device, "not a regular file"},
               [&] { AtomicFile file(device); });
  EXPECT_TRUE(fs::is_symlink(device));
}

TEST(AtomicFile, KeepsTheOldFileUntilCommit) {
  const TempFolder folder;
  const std::string path = folder.write("a", "old");
  {
    AtomicFile file(path);
    file.write("new", 3);
  }
  EXPECT_EQ(read_bytes(path), "old");
}

TEST(AtomicFile, WritesMoreThanItsBuffer) {
  const TempFolder folder;
  const std::string bytes(3'500'000, 'z');
  AtomicFile file(folder.file("a"));
  for (int i = 0; i < 3; ++i) file.write(bytes.data(), static_cast<std::int64_t>(bytes.size()));
  file.commit();
  EXPECT_EQ(read_bytes(folder.file("a")), bytes + bytes + bytes);
}

TEST(AtomicFile, NamesTheFolderItCannotMake) {
  const TempFolder folder;
  folder.write("a", "a file, not a folder");
  expect_error(ExitCode::kRuntime, {folder.file("a/b")},
               [&] { const AtomicFile file(folder.file("a/b/c")); });
}

TEST(WriteAdvice, TellsTheReasonAndWhatToDo) {
  const auto holds = [](int reason, const std::string& part) {
    const std::string text = write_advice(reason, "--out");
    EXPECT_NE(text.find(part), std::string::npos) << text;
    EXPECT_TRUE(text.ends_with(", or choose another --out")) << text;
  };
  holds(ENOSPC, "No space left on device; make room");
  holds(EROFS, "Read-only file system; allow writing there");
  holds(ENOTDIR, "Not a directory; move away what has that name");
  holds(EIO, "error; check the disk");
}

}  // namespace
}  // namespace nsa::test
