#include "data/mapped_file.h"

#include <sys/stat.h>
#include <utility>

#include "support/errors.h"
#include "support/files.h"

namespace nsa::test {
namespace {

TEST(MappedFile, ShowsTheBytesOfTheFile) {
  const TempFolder folder;
  const MappedFile file(folder.write("a", "bytes"));
  ASSERT_EQ(file.bytes().size(), 5U);
  EXPECT_EQ(file.bytes()[4], std::byte{'s'});
}

TEST(MappedFile, AnEmptyFileIsNoBytes) {
  const TempFolder folder;
  EXPECT_TRUE(MappedFile(folder.write("a", "")).bytes().empty());
}

TEST(MappedFile, KeepsItsAddressWhenMoved) {
  const TempFolder folder;
  MappedFile file(folder.write("a", "bytes"));
  const std::byte* address = file.bytes().data();
  const MappedFile moved(std::move(file));
  EXPECT_EQ(moved.bytes().data(), address);
}

TEST(MappedFile, AMissingFileIsADataError) {
  const TempFolder folder;
  expect_error(ExitCode::kData, {folder.file("none"), "No such file"},
               [&] { const MappedFile file(folder.file("none")); });
}

TEST(MappedFile, APipeIsNotWaitedFor) {
  const TempFolder folder;
  ASSERT_EQ(mkfifo(folder.file("pipe").c_str(), 0600), 0);
  expect_error(ExitCode::kData, {folder.file("pipe"), "not a regular file"},
               [&] { const MappedFile file(folder.file("pipe")); });
}

TEST(MappedFile, AFolderIsADataError) {
  const TempFolder folder;
  expect_error(ExitCode::kData, {folder.path(), "not a regular file"},
               [&] { const MappedFile file(folder.path()); });
}

}  // namespace
}  // namespace nsa::test
