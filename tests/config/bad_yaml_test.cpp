#include <gtest/gtest.h>

#include "yaml_file.h"

namespace nsa {
namespace {

class BadYaml : public testing::TestWithParam<BadCase> {};

TEST_P(BadYaml, IsRefusedWithItsPlaceCountedFromOne) {
  EXPECT_EQ(refusal_of_file(GetParam().text), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Table, BadYaml,
    testing::Values(
        BadCase{"Empty", "", "run.yaml: is empty; a configuration needs at least data.train"},
        BadCase{"OnlyAComment", "# hello\n",
                "run.yaml: is empty; a configuration needs at least data.train"},
        BadCase{"List", "[1, 2]",
                "run.yaml:1:1: holds a list; a configuration is a map of sections such as model:"},
        BadCase{"Scalar", "\nhello",
                "run.yaml:2:1: holds hello; a configuration is a map of sections such as model:"},
        BadCase{"OpenList", "model:\n  layers: [1\n",
                "run.yaml:3:1: broken YAML: end of sequence flow not found"},
        BadCase{"OpenQuote", "run: {name: \"abc",
                "run.yaml:1:17: broken YAML: illegal EOF in scalar"},
        BadCase{"BadIndent", "model:\n  layers: 2\n heads: 3\n",
                "run.yaml:3:2: broken YAML: end of map not found"},
        BadCase{"UnknownAnchor", "model: *m",
                "run.yaml:1:8: broken YAML: the referenced anchor is not defined"},
        BadCase{"TwoDocuments", "run: {}\n---\nmodel: {}\n",
                "run.yaml: holds 2 YAML documents; a configuration is one"},
        BadCase{"KeyThatIsAList", "? [a]\n: b\n",
                "run.yaml:1:3: a key must be a word, not a list, a map or null"},
        BadCase{"KeySetTwice", "model:\n  layers: 2\n  heads: 4\n  layers: 3\n",
                "run.yaml:4:3: layers is set twice (first at run.yaml:2:3); keep one of them"},
        BadCase{"SectionSetTwice", "run: {}\nmodel: {}\nrun: {}\n",
                "run.yaml:3:1: run is set twice (first at run.yaml:1:1); keep one of them"},
        BadCase{"KeySetTwiceInAStage", "schedule: {stages: [{from: 0, from: 1}]}\n",
                "run.yaml:1:31: from is set twice (first at run.yaml:1:22); keep one of them"},
        BadCase{"DeepNesting", std::string(3000, '['),
                "run.yaml:1:1: nested too deeply for a configuration"},
        BadCase{"AliasOfItself", "model: &m [*m]",
                "run.yaml:1:8: nested too deeply or too large for a configuration"},
        BadCase{"UnsetVariable", "run: {name: \"${env:NSA_NO_SUCH_NAME}\"}",
                "run.yaml:1:13: the environment variable NSA_NO_SUCH_NAME of "
                "${env:NSA_NO_SUCH_NAME} is not set"},
        BadCase{"OpenVariable", "run:\n  name: ${env:HOME\n",
                "run.yaml:2:9: ${env:HOME has no closing brace"}),
    case_name);

TEST(BadYaml, AMissingFileIsNamed) {
  try {
    parse_config("/no/such/run.yaml", {}, nullptr);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kConfig);
    EXPECT_STREQ(error.what(),
                 "/no/such/run.yaml: cannot be read; is there such a configuration file?");
  }
}

TEST(BadYaml, AFolderIsNoConfiguration) {
  const YamlFolder folder;
  EXPECT_THROW(parse_config(folder.file(""), {}, nullptr), Error);
}

TEST(BadYaml, AliasesThatMultiplyWithoutMeasureAreRefused) {
  std::string text = "a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 10; ++j) text += (j > 0 ? ", " : "") + before;
    text += "]\n";
  }
  EXPECT_NE(refusal_of_file(text).find("too large"), std::string::npos);
}

// Each key is looked up among those before it: comparing with each of them would take minutes.
TEST(BadYaml, ASecondKeyIsFoundAmongVeryMany) {
  std::string text;
  for (int i = 0; i < 50'000; ++i) text += "key" + std::to_string(i) + ": 1\n";
  EXPECT_EQ(refusal_of_file(text + "key7: 1\n"),
            "run.yaml:50001:1: key7 is set twice (first at run.yaml:8:1); keep one of them");
}

}  // namespace
}  // namespace nsa
