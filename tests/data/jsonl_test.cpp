#include "data/jsonl.h"

#include <gtest/gtest.h>

namespace nsa::test {
namespace {

using namespace std::string_literals;

TEST(Jsonl, GivesTheTextUnderTheKey) {
  const JsonlText line = text_of_line(R"({"id": 3, "body": "a\nb A\u00e9"})", "body");
  EXPECT_EQ(line.problem, "");
  EXPECT_EQ(line.text, "a\nb A\xC3\xA9");
}

TEST(Jsonl, KeepsNulAndLineSeparators) {
  EXPECT_EQ(text_of_line(R"({"text": "a\u0000b\u2028c"})", "text").text,
            "a\0b\xE2\x80\xA8"
            "c"s);
}

TEST(Jsonl, TellsWhatIsWrong) {
  const auto problem = [](const std::string& line) { return text_of_line(line, "text").problem; };
  EXPECT_EQ(problem("{\"text\": \"a"), "is not valid JSON");
  EXPECT_EQ(problem("{\"text\": \"a\0b\"}"s), "is not valid JSON");
  EXPECT_EQ(problem("[1]"), "is a JSON array, wanted an object");
  EXPECT_EQ(problem("{\"text\": 3}"), "holds a number under \"text\", wanted a string");
  EXPECT_NE(problem("{\"a\": 1, \"b\": 2}").find("no key \"text\" (its keys: a, b"),
            std::string::npos);
}

}  // namespace
}  // namespace nsa::test
