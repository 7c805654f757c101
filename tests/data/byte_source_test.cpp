#include "data/byte_source.h"

#include <vector>

#include "data/packing.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/text.h"

namespace nsa::test {
namespace {

using namespace std::string_literals;

std::string read_all(const std::string& path, std::int64_t step = 1000) {
  const auto source = open_bytes(path);
  std::string all;
  std::string part(static_cast<std::size_t>(step), '\0');
  while (const std::int64_t got = source->read(part.data(), step)) {
    all.append(part, 0, static_cast<std::size_t>(got));
  }
  return all;
}

/// More than one buffer of every reader.
const std::string& long_text() {
  static const std::string text = [] {
    std::string made = TextGenerator(1).document(20000);
    while (made.size() < 3'000'000) made += made;
    return made;
  }();
  return text;
}

TEST(ByteSource, ReadsPlainGzipAndZstdAlike) {
  const TempFolder folder;
  EXPECT_EQ(read_all(folder.write("a", long_text())), long_text());
  EXPECT_EQ(read_all(folder.write("b", gzipped(long_text()))), long_text());
  EXPECT_EQ(read_all(folder.write("c", zstd_packed(long_text()))), long_text());
}

TEST(ByteSource, JoinsMembersAndFrames) {
  const TempFolder folder;
  EXPECT_EQ(read_all(folder.write("a", gzipped("one ") + gzipped("") + gzipped("two"))), "one two");
  EXPECT_EQ(read_all(folder.write("b", zstd_packed("one ") + zstd_packed("two"))), "one two");
}

TEST(ByteSource, ReadsEmptyAndTinyFiles) {
  const TempFolder folder;
  EXPECT_EQ(read_all(folder.write("a", "")), "");
  EXPECT_EQ(read_all(folder.write("b", "xyz")), "xyz");
  EXPECT_EQ(read_all(folder.write("c", gzipped(""))), "");
}

TEST(ByteSource, DataThatIsCutOffIsAnError) {
  const TempFolder folder;
  for (const std::string& packed : {gzipped(long_text()), zstd_packed(long_text())}) {
    for (const std::size_t keep : {packed.size() / 2, packed.size() - 1}) {
      const std::string path = folder.write("a", packed.substr(0, keep));
      expect_error(ExitCode::kData, {path, "cut off"}, [&] { read_all(path); });
    }
  }
}

TEST(ByteSource, DamagedDataIsAnError) {
  const TempFolder folder;
  for (std::string packed : {gzipped(long_text()), zstd_packed(long_text())}) {
    for (std::size_t at = packed.size() / 2; at < packed.size() / 2 + 64; ++at) packed[at] = 'x';
    const std::string path = folder.write("a", packed);
    expect_error(ExitCode::kData, {path, "damaged"}, [&] { read_all(path); });
  }
}

std::vector<std::string> lines_of(const std::string& path) {
  LineReader reader(open_bytes(path));
  std::vector<std::string> lines;
  for (std::string line; reader.next(line);) lines.push_back(line);
  return lines;
}

TEST(LineReader, SplitsAtNewlinesAlone) {
  const TempFolder folder;
  const std::string text =
      "a\r\nb\xE2\x80\xA8"
      "c\x0B\xC2\x85"
      "d\n\ne\0f"s;
  EXPECT_EQ(lines_of(folder.write("a", text)), (std::vector<std::string>{"a\r",
                                                                         "b\xE2\x80\xA8"
                                                                         "c\x0B\xC2\x85"
                                                                         "d",
                                                                         "", "e\0f"s}));
}

TEST(LineReader, AFinalNewlineStartsNoLine) {
  const TempFolder folder;
  EXPECT_EQ(lines_of(folder.write("a", "a\n")), std::vector<std::string>{"a"});
  EXPECT_EQ(lines_of(folder.write("b", "")), std::vector<std::string>{});
}

TEST(LineReader, ALineMayBeLongerThanTheBuffer) {
  const TempFolder folder;
  const std::string line(2'500'000, 'y');
  EXPECT_EQ(lines_of(folder.write("a", line + "\n" + line)),
            (std::vector<std::string>{line, line}));
}

}  // namespace
}  // namespace nsa::test
