#include "data/tokenizer.h"

#include "core/checksum.h"
#include "data/corpora.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/text.h"

namespace nsa::test {
namespace {

using namespace std::string_literals;

const Tokenizer& tokenizer() {
  static const Tokenizer made(test_corpus().file("tok.model"));
  return made;
}

void expect_round_trip(const std::string& text) {
  EXPECT_EQ(tokenizer().decode(tokenizer().encode(text)), text);
}

TEST(Tokenizer, KnowsItsSizeAndItsMark) {
  EXPECT_EQ(tokenizer().vocab_size(), kTestVocabulary);
  EXPECT_EQ(tokenizer().eos_id(), 1);
  const std::string bytes = read_bytes(test_corpus().file("tok.model"));
  EXPECT_EQ(tokenizer().fingerprint(),
            crc32(0, bytes.data(), static_cast<std::int64_t>(bytes.size())));
}

TEST(Tokenizer, GivesBackGeneratedTextExactly) {
  expect_round_trip(TextGenerator(77).document(3000));
}

TEST(Tokenizer, GivesBackAnyWhitespaceExactly) {
  expect_round_trip("  two before,   three inside, one behind ");
  expect_round_trip("\n\n\n");
  expect_round_trip("\tif (x) {\n\t\t  y;\r\n\t}\n\n\n  z");
  expect_round_trip(std::string(100, ' ') + "\n" + std::string(100, '\t'));
  expect_round_trip(" ");
  expect_round_trip("\xC2\xA0\xE2\x80\xA8\xE3\x80\x80");  // other spaces of Unicode
}

TEST(Tokenizer, GivesBackCharactersItNeverSawExactly) {
  expect_round_trip("\xD0\x96\xE4\xB8\xAD\xF0\x9F\x98\x80 e\xCC\x81 \xC3\xA9 \xEF\xAC\x81");
  expect_round_trip("nul \0 nul"s);
  expect_round_trip("\x01\x02\x7F\xEF\xBF\xBD\xEF\xBF\xBF\xEF\xBB\xBF");
}

// These mean something inside sentencepiece.
TEST(Tokenizer, GivesBackSentencepieceMarksExactly) {
  expect_round_trip(
      "a\xE2\x96\x81"
      "b \xE2\x96\x81 \xE2\x96\x85 \xE2\x81\x87");
  expect_round_trip("<unk> </s> <s> <0x0A> <pad>");
}

TEST(Tokenizer, EverySingleCharacterRoundTrips) {
  std::string text;
  for (std::uint32_t c = 0; c < 0x800; ++c) {
    if (c < 0x80) {
      text += static_cast<char>(c);
    } else {
      text += static_cast<char>(0xC0U | c >> 6U);
      text += static_cast<char>(0x80U | (c & 0x3FU));
    }
  }
  expect_round_trip(text);
}

TEST(Tokenizer, LongTextIsTheSameInPartsAndWhole) {
  // Every part that encode() cuts is longer than this line, so the line is encoded whole.
  const std::string line = "Then Kalomi opened the door of Rentavo.\n\n";
  const std::vector<std::int32_t> once = tokenizer().encode(line);
  std::string text;
  std::vector<std::int32_t> expected;
  for (int i = 0; i < 200; ++i) {
    text += line;
    expected.insert(expected.end(), once.begin(), once.end());
  }
  EXPECT_EQ(tokenizer().encode(text), expected);
}

TEST(Tokenizer, NothingIsNoTokens) {
  EXPECT_TRUE(tokenizer().encode("").empty());
  EXPECT_EQ(tokenizer().decode({}), "");
}

TEST(Tokenizer, TheMarkAndUnknownIdsDecodeToNothing) {
  std::vector<std::int32_t> ids = tokenizer().encode("a door");
  ids.insert(ids.begin() + 1, {1, 100000, -1});
  ids.push_back(1);
  EXPECT_EQ(tokenizer().decode(ids), "a door");
}

TEST(Tokenizer, EncodesToFewerTokensThanBytes) {
  const std::string text = TextGenerator(5).document(1000);
  EXPECT_LT(tokenizer().encode(text).size() * 2, text.size());
}

TEST(Tokenizer, WhatIsNoModelIsADataError) {
  const TempFolder folder;
  for (const std::string& bytes : {"hello world"s, "\x7F\x45\x4C\x46\0\0\0\xFF"s}) {
    const std::string path = folder.write("m", bytes);
    expect_error(ExitCode::kData, {path, "not a sentencepiece model"},
                 [&] { const Tokenizer made(path); });
  }
  expect_error(ExitCode::kData, {folder.write("empty", ""), "empty"},
               [&] { const Tokenizer made(folder.file("empty")); });
  expect_error(ExitCode::kData, {folder.file("none"), "cannot be opened"},
               [&] { const Tokenizer made(folder.file("none")); });
  expect_error(ExitCode::kData, {folder.path(), "not a regular file"},
               [&] { const Tokenizer made(folder.path()); });
}

}  // namespace
}  // namespace nsa::test
