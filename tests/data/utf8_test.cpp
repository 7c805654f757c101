#include "data/utf8.h"

#include <gtest/gtest.h>

namespace nsa::test {
namespace {

using namespace std::string_view_literals;

std::string repaired(std::string_view text) {
  std::string out;
  append_repaired(text, out);
  return out;
}

TEST(Utf8, KnowsTheLengthOfEveryKindOfCharacter) {
  EXPECT_EQ(utf8_length("a"), 1U);
  EXPECT_EQ(utf8_length("\0"sv), 1U);
  EXPECT_EQ(utf8_length("\xC3\xA9"), 2U);
  EXPECT_EQ(utf8_length("\xE2\x82\xAC"), 3U);
  EXPECT_EQ(utf8_length("\xF0\x9F\x98\x80"), 4U);
  EXPECT_EQ(utf8_length(""), 0U);
}

TEST(Utf8, RefusesWhatRfc3629Forbids) {
  EXPECT_EQ(utf8_length("\x80"), 0U);              // continuation alone
  EXPECT_EQ(utf8_length("\xC0\x80"), 0U);          // overlong
  EXPECT_EQ(utf8_length("\xE0\x9F\xBF"), 0U);      // overlong
  EXPECT_EQ(utf8_length("\xED\xA0\x80"), 0U);      // surrogate
  EXPECT_EQ(utf8_length("\xF4\x90\x80\x80"), 0U);  // above U+10FFFF
  EXPECT_EQ(utf8_length("\xE2\x82"), 0U);          // cut off
  EXPECT_EQ(utf8_length("\xE2\x82x"), 0U);
}

TEST(Utf8, RepairLeavesValidTextAlone) {
  const std::string_view text = "plain \xC3\xA9 \xE2\x80\xA8 \xF0\x9F\x98\x80 \0 end"sv;
  std::string out;
  EXPECT_EQ(append_repaired(text, out), 0U);
  EXPECT_EQ(out, text);
}

TEST(Utf8, RepairReplacesEachBadByte) {
  EXPECT_EQ(repaired("a\xFFz"), "a\xEF\xBF\xBDz");
  EXPECT_EQ(repaired("\xE2\x82"), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(repaired("caf\xE9 cr\xE8me"), "caf\xEF\xBF\xBD cr\xEF\xBF\xBDme");
}

}  // namespace
}  // namespace nsa::test
