// Text, models and sizes that nsa_tokenize refuses: one sentence, the exit code, and the shards and
// models of an earlier run as they were.

#include "data/token_dataset.h"
#include "data/tokenizer.h"
#include "promises/refusal.h"
#include "promises/tiny_run.h"

namespace nsa::test {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;

// What gzip and zstd make of two letters and a newline.
const std::string kGzip =
    "\x1f\x8b\x08\0\0\0\0\0\x02\xff\x4b\x4c\xe2\x02\0\x3e\x98\x4a\x01\x03\0\0\0"s;

/// A tokenizer, and shards of an earlier run at `old_*`.
class BadText : public ::testing::Test {
 protected:
  void SetUp() override {
    spill(folder_ / "text.jsonl", grammar_jsonl(20, 3));
    const Outcome trained = tokenize(
        {"train", "--in", path("text.jsonl"), "--vocab-size", "300", "--out", path("text.model")});
    ASSERT_EQ(trained.code, 0) << trained.err;
    ASSERT_EQ(encode({path("text.jsonl")}).code, 0);
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  Outcome encode(const Words& in, const Words& more = {}) const {
    Words arguments = {"encode", "--model", path("text.model"), "--out", path("old"), "--in"};
    arguments.insert(arguments.end(), in.begin(), in.end());
    arguments.insert(arguments.end(), more.begin(), more.end());
    return tokenize(arguments);
  }
  void expect_untouched(const Words& arguments, int code, const Words& parts) const {
    const auto before = contents(folder_.path());
    expect_refusal(tokenize(arguments), code, parts);
    EXPECT_TRUE(contents(folder_.path()) == before) << "a file changed";
  }
  void expect_text_refused(const std::string& name, const Words& parts,
                           const Words& more = {}) const {
    Words arguments = {"encode",   "--model", path("text.model"), "--in",
                       path(name), "--out",   path("old")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Words all = parts;
    all.push_back(path(name));
    expect_untouched(arguments, 3, all);
  }

  TempFolder folder_;
};

TEST_F(BadText, OfUtf16IsRefusedNotReplacedLetterByLetter) {
  const std::string letters = "\xFF\xFEh\0i\0\n\0"s;
  spill(folder_ / "wide.txt", letters);
  spill(folder_ / "wide.jsonl", letters);
  spill(folder_ / "other_end.txt", "\xFE\xFF\0h\0i"s);
  for (const char* name : {"wide.txt", "wide.jsonl", "other_end.txt"}) {
    expect_text_refused(name, {"byte order mark of UTF-16", "wanted UTF-8", "iconv"});
  }
}

TEST_F(BadText, ThatIsPackedAndCutOffIsRefused) {
  spill(folder_ / "whole.txt.gz", kGzip);
  spill(folder_ / "cut.txt.gz", kGzip.substr(0, kGzip.size() - 3));
  spill(folder_ / "start.txt.gz", kGzip.substr(0, 2));
  spill(folder_ / "cut.txt.zst", "\x28\xb5\x2f\xfd\x24"s);
  expect_text_refused("cut.txt.gz", {"is gzip data that is cut off", "pack it again"});
  expect_text_refused("start.txt.gz", {"is gzip data that is cut off", "pack it again"});
  expect_text_refused("cut.txt.zst", {"is zstd data that is cut off", "pack it again"});
  EXPECT_EQ(encode({path("whole.txt.gz")}).code, 0);
}

TEST_F(BadText, ThatIsPackedAndDamagedIsRefused) {
  std::string bytes = kGzip;
  bytes[bytes.size() - 6] = static_cast<char>(bytes[bytes.size() - 6] ^ 1);
  spill(folder_ / "bad.txt.gz", bytes);  // another checksum; and a block of no known type
  spill(folder_ / "bad.txt.zst", "\x28\xb5\x2f\xfd\x20\x03\x07\0\0\x61"s);
  expect_text_refused("bad.txt.gz", {"is damaged gzip data", "pack it again"});
  expect_text_refused("bad.txt.zst", {"is damaged zstd data", "pack it again"});
}

TEST_F(BadText, WithOnlyAMarkOrNothingIsRefused) {
  for (const std::string& text : {""s, "\xEF\xBB\xBF"s}) {
    for (const char* name : {"none.txt", "none.jsonl"}) {
      spill(folder_ / name, text);
      expect_untouched(
          {"encode", "--model", path("text.model"), "--in", path(name), "--out", path("old")}, 3,
          {"1 files gave no token", "nothing was written"});
    }
  }
}

TEST_F(BadText, OfPlainFilesComesThroughWithItsLineEndsAndNulButWithoutItsMark) {
  spill(folder_ / "odd.txt",
        "\xEF\xBB\xBF"
        "a\r\nb\0c\xE2\x80\xA8"s +
            "d");
  spill(folder_ / "bad.txt", "a\xFF");
  const Outcome run = encode({path("odd.txt"), path("bad.txt")});
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.out.find("replaced in 1 documents"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("2 documents of 2 files"), std::string::npos) << run.out;
  const Tokenizer tokenizer(path("text.model"));
  const TokenDataset data({path("old_00000.bin")});
  std::vector<std::int32_t> ids(static_cast<std::size_t>(data.tokens()));
  data.read(0, ids);
  std::erase(ids, static_cast<std::int32_t>(tokenizer.eos_id()));
  EXPECT_EQ(tokenizer.decode(ids), "a\r\nb\0c\xE2\x80\xA8"s + "da\xEF\xBF\xBD");
}

TEST_F(BadText, WithALoneSurrogateOrNestedWithoutEndIsABadLine) {
  spill(folder_ / "bad.jsonl", R"({"text": "a \ud800 b"})"
                               "\n");
  expect_text_refused("bad.jsonl", {"bad.jsonl:1: is not valid JSON"});
  spill(folder_ / "bad.jsonl", "{\"text\": " + std::string(100'000, '['));
  expect_text_refused("bad.jsonl", {"bad.jsonl:1: is not valid JSON"});
}

TEST_F(BadText, AFaultBehindMuchGoodTextLosesNothingEither) {
  spill(folder_ / "late.jsonl", grammar_jsonl(500, 4) + "{\"text\": 5}\n");
  expect_text_refused("late.jsonl", {"late.jsonl:501: ", "holds a number"},
                      {"--shard-tokens", "100"});
}

TEST_F(BadText, AFolderWithoutTextIsRefused) {
  fs::create_directory(folder_ / "empty");
  expect_text_refused("empty", {"is a folder without files that end in .txt", "--suffix"});
}

TEST_F(BadText, AModelThatIsNoneIsRefused) {
  const std::string model = slurp(folder_ / "text.model");
  spill(folder_ / "half.model", model.substr(0, model.size() / 2));
  spill(folder_ / "empty.model", "");
  for (const char* name : {"half.model", "empty.model", "text.jsonl", "missing.model"}) {
    expect_untouched(
        {"encode", "--model", path(name), "--in", path("text.jsonl"), "--out", path("old")}, 3,
        {path(name) + ": ", "sentencepiece model"});
  }
}

TEST_F(BadText, AVocabularyThatCannotBeIsRefusedWithTheSizesThatCan) {
  const auto expect_size = [this](const std::string& size, const Words& parts) {
    expect_untouched(
        {"train", "--in", path("text.jsonl"), "--vocab-size", size, "--out", path("text.model")}, 2,
        parts);
  };
  expect_size("5", {"--vocab-size is 5", "at least 272"});
  expect_size("-1", {"--vocab-size", "-1"});
  expect_size("99999999999", {"--vocab-size is 99999999999", "at most 16777216"});
  expect_size("many", {"--vocab-size", "many"});
  expect_size("100000", {"--vocab-size 100000 does not fit", "give at most "});
}

TEST_F(BadText, AModelIsNotWrittenInAFoldersPlace) {
  expect_untouched({"train", "--in", path("text.jsonl"), "--vocab-size", "300", "--out",
                    folder_.path().string()},
                   1, {folder_.path().string(), "is not a regular file", "name a file"});
}

TEST_F(BadText, AValidationShareThatTakesNothingIsRefused) {
  spill(folder_ / "one.txt", "the miller sees the fox");
  expect_untouched({"encode", "--model", path("text.model"), "--in", path("one.txt"), "--out",
                    path("old"), "--val-fraction", "0.1"},
                   3,
                   {"--val-fraction 0.1 of 1 documents leaves none for val", "another fraction"});
}

}  // namespace
}  // namespace nsa::test
