// nsa_recall as its users run it: make, a few steps of nsa_train, score.

#include "recall/recall_score.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "config/parse.h"
#include "promises/process.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace nsa::recall {
namespace {

using test::expect_error;
using test::Outcome;
using test::run_program;
using test::spill;

constexpr Task kTask{.length = 32, .shortest = 16, .keys = 8, .values = 2, .seed = 1};

class RecallScore : public ::testing::Test {
 protected:
  void SetUp() override {
    write_train(kTask, (folder_ / "train.bin").string(), 20000);
    write_val(kTask, (folder_ / "val.bin").string(), 20);
    spill(folder_ / "run.yaml", R"(
model: {vocab_size: 27, layers: 1, hidden: 16, heads: 2, kv_heads: 1, head_dim: 8, ffn: 16}
attention: {compress: {rate: 4, overlap: 1}, select: {block: 4, top_n: 4, local: 1}, window: 4}
data: {train: [train.bin], val: [val.bin], doc_mask: true}
train: {seq_len: 32, tokens_per_step: 256, steps: 60}
optim: {lr: 1.0e-2}
schedule: {lr: {warmup: 5}}
eval: {every: 0, at_start: false}
)");
  }

  std::string yaml() const { return (folder_ / "run.yaml").string(); }
  Config config() const {
    return parse_config(yaml(), {"run.out_dir=" + (folder_ / "out").string()}, nullptr);
  }
  Outcome train(const std::string& override = "run.seed=1337") const {
    return run_program({NSA_BINARY_DIR "/nsa_train", "--config", yaml(), "--override",
                        "run.out_dir=" + (folder_ / "out").string(), "--override", override});
  }
  Outcome recall(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), NSA_BINARY_DIR "/nsa_recall");
    return run_program(arguments);
  }

  test::TempFolder folder_;
};

TEST_F(RecallScore, CountsQueriesOfTheFirstDocumentsAndTheirDistance) {
  ASSERT_EQ(train().code, 0);
  const Score all = score(config(), kTask, "", 1000);
  EXPECT_EQ(all.queries, 20 * 8);
  EXPECT_EQ(all.step, 60);
  EXPECT_GT(all.nearest, 8);
  const Score some = score(config(), kTask, "", 3);
  EXPECT_EQ(some.queries, 3 * 8);
  EXPECT_LE(some.right, all.right);
}

TEST_F(RecallScore, LearntClassOfTheAnswerMakesGuessesRightAtChance) {
  // After 60 steps the model knows that values follow keys: of two, about half are right.
  ASSERT_EQ(train().code, 0);
  const Score found = score(config(), kTask, "", 20);
  EXPECT_GT(found.accuracy(), 0.3);
  EXPECT_LT(found.accuracy(), 0.8);
}

TEST_F(RecallScore, SelectionIsCountedForEveryNsaLayer) {
  ASSERT_EQ(train().code, 0);
  const Score found = score(config(), kTask, "", 20);
  ASSERT_EQ(found.found.size(), 1U);
  // The first block is forced, and holds half of the records.
  EXPECT_EQ(found.found[0].layer, 0);
  EXPECT_GE(found.found[0].share, 0.5);
  EXPECT_LE(found.found[0].share, 1.0);
}

TEST_F(RecallScore, WithoutTheSelectedBranchNoSelectionIsCounted) {
  for (const std::string branches : {"[window]", "[compressed,window]"}) {
    const std::string override = "attention.branches=" + branches;
    ASSERT_EQ(train(override).code, 0);
    Config other = config();
    other.attention.selected = false;
    other.attention.compressed = branches != "[window]";
    const Score found = score(other, kTask, "", 3);
    EXPECT_EQ(found.queries, 3 * 8);
    EXPECT_TRUE(found.found.empty());
    std::filesystem::remove_all(folder_ / "out");
  }
}

TEST_F(RecallScore, WithoutACheckpointIsRefused) {
  expect_error(ExitCode::kCheckpoint, {"checkpoint"}, [&] { score(config(), kTask, "", 20); });
}

TEST_F(RecallScore, WithoutHeldOutDocumentsIsRefused) {
  Config without = config();
  without.data.val.clear();
  expect_error(ExitCode::kConfig, {"data.val"}, [&] { score(without, kTask, "", 20); });
}

TEST_F(RecallScore, ProgramWritesTheFilesThatTheLibraryWrites) {
  const std::string out = (folder_ / "made").string();
  const Outcome made =
      recall({"make", "--out", out, "--length", "32", "--shortest", "16", "--keys", "8", "--values",
              "2", "--train-tokens", "20000", "--documents", "20"});
  EXPECT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(test::slurp(out + "/train.bin"), test::slurp(folder_ / "train.bin"));
  EXPECT_EQ(test::slurp(out + "/val.bin"), test::slurp(folder_ / "val.bin"));
  EXPECT_NE(made.out.find("vocabulary 27"), std::string::npos) << made.out;
}

TEST_F(RecallScore, ProgramPrintsTheAccuracy) {
  ASSERT_EQ(train().code, 0);
  const Outcome scored =
      recall({"score", "--config", yaml(), "--override",
              "run.out_dir=" + (folder_ / "out").string(), "--keys", "8", "--values", "2"});
  EXPECT_EQ(scored.code, 0) << scored.err;
  EXPECT_NE(scored.out.find("of 160 held-out queries right"), std::string::npos) << scored.out;
}

TEST_F(RecallScore, WrongOptionsHaveTheCodeOfConfiguration) {
  const Outcome refused = recall({"make", "--out", folder_.path().string(), "--keys", "3"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("--keys is 3"), std::string::npos) << refused.err;
  EXPECT_EQ(recall({"score"}).code, 2);
  EXPECT_EQ(recall({}).code, 2);
}

}  // namespace
}  // namespace nsa::recall
