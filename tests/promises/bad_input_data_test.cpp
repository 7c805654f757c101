// Shards that nsa_train refuses: exit code 3 (2 where the configuration does not fit them), one
// sentence with the file, what was found and wanted, and no file touched.

#include <functional>
#include <ostream>

#include "data/foreign_bytes.h"
#include "data/shards.h"
#include "promises/refusal.h"

namespace nsa::test {
namespace {

using Mend = std::function<void(std::string&)>;

/// A fault in the bytes of a shard that was sound.
struct ShardFault {
  std::string name;
  Mend damage;
  Words parts;
};

// What a failing test shows of it. NOLINTNEXTLINE(readability-identifier-naming)
void PrintTo(const ShardFault& fault, std::ostream* out) {
  *out << fault.name;
}

std::string name_of(const ::testing::TestParamInfo<ShardFault>& info) {
  return info.param.name;
}

template <class T>
Mend set(std::size_t at, T value) {
  return [=](std::string& bytes) { put(bytes, at, value); };
}
Mend cut(std::size_t bytes_left) {
  return [=](std::string& bytes) { bytes.resize(bytes_left); };
}

class BadData : public SmallRun {
 protected:
  void damage(const std::string& name, const Mend& mend) const {
    std::string bytes = slurp(folder_ / name);
    mend(bytes);
    spill(folder_ / name, bytes);
  }
  void expect_refused(int code, const Words& parts, const Words& overrides = {}) const {
    expect_train_refuses(overrides, {"--check-data"}, code, parts);
  }
};

class BadShard : public BadData, public ::testing::WithParamInterface<ShardFault> {};

TEST_P(BadShard, ExitsThreeWithTheFileAndTheRemedy) {
  damage("train.bin", GetParam().damage);
  Words parts = GetParam().parts;
  parts.push_back(path("train.bin") + ": ");
  expect_refused(3, parts);
}

// The shard has 400 tokens of 2 bytes in 2 documents: 64 + 800 + 2 * 8 bytes.
INSTANTIATE_TEST_SUITE_P(
    Nsa, BadShard,
    ::testing::Values(
        ShardFault{"Magic", set<std::uint8_t>(0, 'X'), {"[58 53 41 54", "no token format known"}},
        ShardFault{"Version", set<std::uint32_t>(8, 9), {"version 9", "reads version 1", "encode"}},
        ShardFault{"BytesPerToken", set<std::uint32_t>(12, 3), {"3 bytes per token", "2 (u16)"}},
        ShardFault{"MoreTokensThanBytes", set<std::int64_t>(16, 401), {"880 bytes", "401 tokens"}},
        ShardFault{"NegativeCount", set<std::int64_t>(16, -1), {"-1 tokens", "damaged"}},
        ShardFault{"CountBeyondAnyFile",
                   set<std::int64_t>(16, std::int64_t{1} << 62),
                   {"4611686018427387904 tokens", "damaged"}},
        ShardFault{"Vocabulary", set<std::int64_t>(24, 70'000), {"70000", "at most 65536"}},
        ShardFault{"EndTokenBelowNone", set<std::int32_t>(36, -2), {"token -2", "wanted -1"}},
        ShardFault{"EndTokenOutside", set<std::int32_t>(36, 64), {"token 64", "vocabulary of 64"}},
        ShardFault{"MoreDocumentsThanTokens",
                   set<std::int64_t>(40, 401),
                   {"401 documents", "documents <= tokens"}},
        ShardFault{"Reserved", set<std::uint8_t>(50, 1), {"reserved bytes 48 to 63", "zeros"}},
        ShardFault{"FirstDocumentLater",
                   set<std::int64_t>(864, 5),
                   {"document 0 starts at token 5", "wanted 0"}},
        ShardFault{"DocumentBehindTheEnd",
                   set<std::int64_t>(872, 400),
                   {"document 1 starts at token 400", "less than 400"}},
        ShardFault{"DocumentsThatFall",
                   set<std::int64_t>(872, 0),
                   {"document 1 starts at token 0", "more than 0"}},
        ShardFault{"TokenOutside",
                   set<std::uint16_t>(64 + 2 * 123, 64),
                   {"token 123 (at byte 310) is id 64", "vocabulary of 64"}},
        ShardFault{"ZeroLength", cut(0), {"is empty", "nsa_tokenize encode"}},
        ShardFault{"CutInTheHeader", cut(63), {"63 bytes", "shorter than the 64-byte header"}},
        ShardFault{"CutInTheTokens", cut(500), {"500 bytes", "wants 880", "cut off"}},
        ShardFault{"CutAtTheEnd", cut(879), {"879 bytes", "wants 880"}},
        ShardFault{"TooLong",
                   [](std::string& bytes) { bytes += "x"; },
                   {"881 bytes", "wants 880", "damaged"}},
        ShardFault{"Text",
                   [](std::string& bytes) { bytes = "{\"text\": \"hello\"}\n"; },
                   {"holds text, not tokens", "nsa_tokenize encode --in"}},
        ShardFault{"PackedText",
                   [](std::string& bytes) { bytes = "\x1f\x8b\x08"; },
                   {"holds text, not tokens"}},
        ShardFault{"OfAnotherProgram",
                   [](std::string& bytes) { bytes = "BIN.TOK\n" + std::string(100, '\0'); },
                   {"LLMQ", "not in this version"}}),
    name_of);

class BadLlmcShard : public BadData, public ::testing::WithParamInterface<ShardFault> {};

TEST_P(BadLlmcShard, ExitsThreeWithTheFileAndTheRemedy) {
  std::string bytes = llmc_bytes<std::uint16_t>(std::vector<std::int64_t>(400, 5));
  GetParam().damage(bytes);
  spill(folder_ / "train.bin", bytes);
  Words parts = GetParam().parts;
  parts.push_back(path("train.bin") + ": ");
  expect_refused(3, parts);
}

INSTANTIATE_TEST_SUITE_P(
    Llmc, BadLlmcShard,
    ::testing::Values(
        ShardFault{"Version", set<std::int32_t>(4, 2), {"version 2", "wanted version 1"}},
        ShardFault{"MoreTokensThanBytes", set<std::int32_t>(8, 401), {"1824 bytes", "1826"}},
        ShardFault{"NegativeCount", set<std::int32_t>(8, -7), {"-7 tokens", "at least 0"}},
        ShardFault{"HeaderInUse", set<std::int32_t>(20, 3), {"at 20 of its header hold 3"}},
        ShardFault{"Model", set<std::int32_t>(0, 20240326), {"is a model of llm.c"}},
        ShardFault{"EvaluationSet", set<std::int32_t>(0, 20240522), {"is an evaluation set"}},
        ShardFault{"CutInTheHeader", cut(1000), {"1000 bytes", "1024-byte header"}},
        ShardFault{"CutInTheTokens", cut(1025), {"1025 bytes", "cut off"}},
        ShardFault{"TokenOutside",
                   set<std::uint16_t>(1024 + 2 * 399, 64),
                   {"token 399 (at byte 1822) is id 64", "vocabulary of 64"}}),
    name_of);

class BadMegatronPair : public BadData, public ::testing::WithParamInterface<ShardFault> {
 protected:
  void SetUp() override {
    BadData::SetUp();
    spill(folder_ / "pair.bin", raw_tokens<std::uint16_t>(std::vector<std::int64_t>(100, 5)));
    spill(folder_ / "pair.idx", megatron_index(8, 2, {60, 40}, {0, 1, 2}));
  }
  Words pair() const { return {"data.train=" + path("pair.bin")}; }
};

TEST_P(BadMegatronPair, ExitsThreeWithTheIndexAndTheRemedy) {
  damage("pair.idx", GetParam().damage);
  Words parts = GetParam().parts;
  parts.push_back(path("pair."));
  expect_refused(3, parts, pair());
}

INSTANTIATE_TEST_SUITE_P(
    Megatron, BadMegatronPair,
    ::testing::Values(ShardFault{"Magic", set<std::uint8_t>(0, 'X'), {"pair.idx"}},
                      ShardFault{"Version", set<std::uint64_t>(9, 2), {"pair.idx", "version 2"}},
                      ShardFault{"Type", set<std::uint8_t>(17, 6), {"pair.idx", "6"}},
                      ShardFault{
                          "Sequences", set<std::uint64_t>(18, 1'000'000), {"pair.idx", "1000000"}},
                      ShardFault{"Documents", set<std::uint64_t>(26, 4), {"pair.idx", "4"}},
                      ShardFault{"Lengths", set<std::int32_t>(34, 61), {"pair."}},
                      ShardFault{"Pointers", set<std::int64_t>(50, 118), {"pair.", "118"}},
                      ShardFault{"Boundaries", set<std::int64_t>(66, 3), {"pair.idx"}},
                      ShardFault{"CutInTheHeader", cut(33), {"pair.idx", "33 bytes"}},
                      ShardFault{"CutInTheArrays", cut(60), {"pair.idx", "60 bytes"}},
                      ShardFault{"ZeroLength", cut(0), {"pair.idx"}}),
    name_of);

TEST_F(BadMegatronPair, WithTokensCutOffIsRefused) {
  damage("pair.bin", cut(150));
  expect_refused(3, {path("pair.bin"), "150 bytes"}, pair());
}

TEST_F(BadMegatronPair, WithATokenOutsideIsRefused) {
  damage("pair.bin", set<std::uint16_t>(154, 999));
  expect_refused(3, {path("pair.bin"), "token 77 (at byte 154) is id 999", "vocabulary of 64"},
                 pair());
}

TEST_F(BadMegatronPair, WithoutItsTokensIsRefused) {
  std::filesystem::remove(folder_ / "pair.bin");
  expect_refused(3, {path("pair.bin")}, {"data.train=" + path("pair.idx")});
}

TEST_F(BadMegatronPair, WithoutItsIndexIsRefused) {
  std::filesystem::remove(folder_ / "pair.idx");
  expect_refused(3, {path("pair"), ".idx"},
                 {"data.train=" + path("pair.bin"), "data.format=megatron"});
}

TEST_F(BadData, MissingFilesAreNamedWithTheNearestNames) {
  expect_refused(3, {path("trian.bin"), "names no file", "train.bin"},
                 {"data.train=" + path("trian.bin")});
  expect_refused(3, {path("tra*_x.bin"), "names no file", "train.bin"},
                 {"data.train=" + path("tra*_x.bin")});
  expect_refused(3, {path("no/train.bin"), "does not exist"},
                 {"data.train=" + path("no/train.bin")});
}

TEST_F(BadData, AFolderIsRefusedWithTheGlobThatWasMeant) {
  expect_refused(3, {folder_.path().string(), "is a folder", "*.bin"},
                 {"data.train=" + folder_.path().string()});
}

TEST_F(BadData, AFaultOfValidationDataIsToldAsOne) {
  damage("val.bin", set<std::uint16_t>(64 + 2 * 7, 1000));
  expect_refused(3, {path("val.bin"), "token 7 (at byte 78) is id 1000", "vocabulary of 64"});
}

TEST_F(BadData, LessThanAPageIsRefusedWithBothNumbers) {
  expect_refused(3, {"train.bin", "400 tokens", "at least 513", "train.seq_len"},
                 {"train.seq_len=512", "train.tokens_per_step=512"});
}

TEST_F(BadData, LessThanAStepIsSeveralEpochsAStep) {
  // 12 pages of 32 make an epoch and a step takes 32 of them.
  const Outcome outcome =
      train({"train.tokens_per_step=1024", "train.steps=2", "data.val=null"}, {"--check-data"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(train({"train.tokens_per_step=1024", "train.steps=2"}).code, 0);
}

TEST_F(BadData, AShardWithoutTokensIsLessThanAPage) {
  write_shard(path("none.bin"), {}, {.vocab_size = kVocabulary});
  expect_refused(3, {"none.bin", "0 tokens", "at least 33"}, {"data.train=" + path("none.bin")});
}

TEST_F(BadData, ValidationWithoutOneTargetIsRefused) {
  write_shard(path("none.bin"), {}, {.vocab_size = kVocabulary});
  write_shard(path("one.bin"), {Ids{3}}, {.vocab_size = kVocabulary});
  for (const std::string name : {"none.bin", "one.bin"}) {
    expect_refused(3, {name, "data.val"}, {"data.val=" + path(name)});
    expect_train_refuses({"data.val=" + path(name)}, {}, 3, {name, "data.val"});
  }
}

TEST_F(BadData, ATokenOutsideIsFoundInTrainingWithoutTheCheckAtTheStart) {
  damage("train.bin", set<std::uint16_t>(64 + 2 * 100, 64));
  const Outcome outcome = train({"data.check_tokens=false", "data.shuffle=false"});
  expect_refusal(outcome, 3, {path("train.bin") + ": token 100 (at byte 264) is id 64"});
}

TEST_F(BadData, AShardThatIsCutOffWhileItIsInUseExitsThree) {
  const Watch cutter{.on_line = [this](const std::string& line, int /*process*/) {
    if (line.find(" 2/100000 ") != std::string::npos) {
      std::filesystem::resize_file(folder_ / "train.bin", 0);
    }
  }};
  const Outcome outcome = run_program(
      {std::string(NSA_BINARY_DIR) + "/nsa_train", "--config", path("run.yaml"), "--override",
       "run.out_dir=" + out().string(), "--override", "train.steps=100000"},
      cutter);
  expect_refusal(outcome, 3,
                 {path("train.bin") + ": cannot be read any more", "was cut off",
                  "run the same command again"});
}

TEST_F(BadData, AVocabularyLargerThanTheModelsExitsTwo) {
  expect_refused(2, {"data.train", "vocabulary of 64", "model.vocab_size = 63", "at least 64"},
                 {"model.vocab_size=63"});
}

TEST_F(BadData, ShardsOfTwoTokenizersAreRefused) {
  write_shard(path("other.bin"), {counting(0, 60)}, {.vocab_size = kVocabulary, .tokenizer = 9});
  expect_refused(3, {path("train.bin"), path("other.bin"), "00000009", "one tokenizer"},
                 {"data.train=[" + path("train.bin") + ", " + path("other.bin") + "]"});
}

TEST_F(BadData, ValidationDataOfAnotherTokenizerAreRefused) {
  const ShardLabel mine{.vocab_size = kVocabulary, .tokenizer = 7};
  const ShardLabel other{.vocab_size = kVocabulary, .tokenizer = 9};
  write_shard(path("train.bin"), {counting(0, 60)}, mine);
  write_shard(path("val.bin"), {counting(0, 60)}, other);
  expect_refused(3, {path("train.bin"), "00000007", path("val.bin"), "00000009", "one tokenizer"});
  write_shard(path("val.bin"), {counting(0, 60)}, mine);
  EXPECT_EQ(train({}, {"--check-data"}).code, 0);
}

TEST_F(BadData, ShardsOfOtherWidthThanTheFirstAreRefused) {
  spill(folder_ / "a.bin", llmc_bytes<std::uint16_t>(std::vector<std::int64_t>(100, 5)));
  spill(folder_ / "b.bin", llmc_bytes<std::uint32_t>(std::vector<std::int64_t>(100, 5)));
  expect_refused(3, {path("a.bin"), path("b.bin"), "2 bytes", "of 4", "one tokenizer"},
                 {"data.train=[" + path("a.bin") + ", " + path("b.bin") + "]", "data.val=null"});
}

TEST_F(BadData, ATokenizerThatIsNoneExitsThree) {
  expect_refused(3, {path("val.bin"), "is not a sentencepiece model"},
                 {"tokenizer.model=" + path("val.bin")});
  expect_refused(3, {path("none.model"), "cannot be opened"},
                 {"tokenizer.model=" + path("none.model")});
}

TEST_F(BadData, AFileWithoutPermissionIsRefused) {
  std::filesystem::permissions(folder_ / "train.bin", std::filesystem::perms::none);
  if (std::ifstream(folder_ / "train.bin")) GTEST_SKIP() << "the superuser may read everything";
  const Outcome outcome = train({}, {"--check-data"});
  std::filesystem::permissions(folder_ / "train.bin", std::filesystem::perms::owner_all);
  expect_refusal(outcome, 3, {path("train.bin"), "Permission denied"});
}

}  // namespace
}  // namespace nsa::test
