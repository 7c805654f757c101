#include "data/globs.h"

#include "support/errors.h"
#include "support/files.h"

namespace nsa::test {
namespace {

TEST(Globs, AreSorted) {
  const TempFolder folder;
  for (const char* name : {"b_2.bin", "b_10.bin", "a.bin", "a.txt"}) folder.write(name, "x");
  EXPECT_EQ(expand_glob(folder.file("*.bin")),
            (std::vector<std::string>{folder.file("a.bin"), folder.file("b_10.bin"),
                                      folder.file("b_2.bin")}));
}

TEST(Globs, KnowBraces) {
  const TempFolder folder;
  folder.write("a.bin", "x");
  folder.write("c.bin", "x");
  EXPECT_EQ(expand_glob(folder.file("{a,b,c}.bin")).size(), 2U);
}

TEST(Globs, ANameWithGlobCharactersThatExistsIsMeantAsItStands) {
  const TempFolder folder;
  const std::string path = folder.write("a[1].bin", "x");
  folder.write("a1.bin", "x");
  EXPECT_EQ(expand_glob(path), std::vector<std::string>{path});
}

TEST(Globs, WithoutAMatchNameTheNearestFiles) {
  const TempFolder folder;
  folder.write("train_00000.bin", "x");
  folder.write("tok.model", "x");
  expect_error(ExitCode::kData, {folder.file("trains_*.bin"), "nearest", "train_00000.bin"},
               [&] { expand_glob(folder.file("trains_*.bin")); });
}

TEST(Globs, NameAFolderThatIsMissing) {
  const TempFolder folder;
  expect_error(ExitCode::kData, {folder.file("no"), "does not exist"},
               [&] { expand_glob(folder.file("no/*.bin")); });
}

}  // namespace
}  // namespace nsa::test
