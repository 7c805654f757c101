#include "recall/recall_task.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "data/token_dataset.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace nsa::recall {
namespace {

using test::expect_error;
using test::slurp;
using test::TempFolder;
using Document = std::vector<std::int32_t>;

// Ids: filler 0, keys 1 to 16, values 17 to 21, records from 22 on.
constexpr Task kSmall{.length = 64, .shortest = 16, .keys = 16, .values = 5, .seed = 3};

Document held_out(std::int64_t index, const Task& task = kSmall) {
  return document(task, Split::kVal, index, task.length);
}

TEST(RecallDocument, IsRecordsThenFillerThenQueries) {
  const Document ids = held_out(0);
  ASSERT_EQ(ids.size(), 64U);
  for (std::size_t i = 0; i < 64; ++i) {
    const bool is_filler = ids[i] == 0;
    const bool is_key = ids[i] >= 1 && ids[i] <= 16;
    const bool is_value = ids[i] >= 17 && ids[i] <= 21;
    EXPECT_EQ(ids[i] >= 22 && ids[i] < kSmall.vocab_size(), i < 16) << i;
    EXPECT_EQ(is_filler, i >= 16 && i < 32) << i;
    EXPECT_EQ(is_key, i >= 32 && i % 2 == 0) << i;
    EXPECT_EQ(is_value, i >= 32 && i % 2 == 1) << i;
  }
}

TEST(RecallDocument, EachKeyIsAskedForOnceAndItsRecordHoldsTheAnswer) {
  const Document ids = held_out(1);
  std::set<std::int32_t> asked;
  for (std::size_t i = 32; i < 64; i += 2) {
    const std::int32_t record = 22 + (ids[i] - 1) * 5 + (ids[i + 1] - 17);
    EXPECT_EQ(std::count(ids.begin(), ids.begin() + 16, record), 1) << i;
    asked.insert(ids[i]);
  }
  EXPECT_EQ(asked.size(), 16U);
}

TEST(RecallDocument, OrderOfTheQueriesIsNotThatOfTheRecords) {
  const std::vector<Query> found = queries(kSmall, held_out(2));
  std::set<std::int64_t> distances;
  for (const Query& query : found) distances.insert(query.distance - query.position / 2);
  EXPECT_GT(distances.size(), 8U);
}

TEST(RecallDocument, EveryAnswerIsFartherThanAQuarterOfTheDocument) {
  for (std::int64_t index = 0; index < 20; ++index) {
    for (const Query& query : queries(kSmall, held_out(index))) {
      EXPECT_GT(query.distance, 16) << index;
    }
  }
}

TEST(RecallDocument, SameSeedAndIndexGiveTheSameDocument) {
  EXPECT_EQ(held_out(5), held_out(5));
}

TEST(RecallDocument, SplitsIndicesAndSeedsDiffer) {
  Task other = kSmall;
  other.seed = 4;
  EXPECT_NE(held_out(5), document(kSmall, Split::kTrain, 5, 64));
  EXPECT_NE(held_out(5), held_out(6));
  EXPECT_NE(held_out(5), held_out(5, other));
}

TEST(RecallQueries, PositionsAndDistancesPointAtKeyAndRecord) {
  // Keys 2 and 1 with values 4 and 0, then their queries in the other order.
  const Task task{.length = 8, .shortest = 8, .keys = 4, .values = 5};
  const Document ids = {10 + 2 * 5 + 4, 10 + 1 * 5 + 0, 0, 0, 2, 5, 3, 9};
  const std::vector<Query> found = queries(task, ids);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].position, 4);
  EXPECT_EQ(found[0].distance, 3);
  EXPECT_EQ(found[1].position, 6);
  EXPECT_EQ(found[1].distance, 6);
}

TEST(RecallQueries, ADocumentOfAnotherTaskIsRefused) {
  Task other = kSmall;
  other.values = 4;
  expect_error(ExitCode::kData, {"64 tokens", "--values 4", "options that make was given"},
               [&] { queries(other, held_out(0)); });
}

TEST(RecallShards, ValHoldsWholeDocumentsOfFullLength) {
  const TempFolder folder;
  const std::string path = (folder / "val.bin").string();
  const Written written = write_val(kSmall, path, 7);
  EXPECT_EQ(written.documents, 7);
  EXPECT_EQ(written.tokens, 7 * 64);
  const TokenDataset data({path});
  EXPECT_EQ(data.vocab_size(), kSmall.vocab_size());
  Document third(64);
  data.read(2 * 64, third);
  EXPECT_EQ(third, held_out(2));
  std::vector<std::int32_t> starts;
  data.document_starts(0, data.tokens(), starts);
  EXPECT_EQ(starts, (std::vector<std::int32_t>{64, 128, 192, 256, 320, 384}));
}

TEST(RecallShards, PagesOfTrainHoldDocumentsOfOneLengthAndAllLengthsOccur) {
  const TempFolder folder;
  const std::string path = (folder / "train.bin").string();
  const Written written = write_train(kSmall, path, 64 * 30 - 1);
  EXPECT_EQ(written.tokens, 64 * 30);
  const TokenDataset data({path});
  std::set<std::size_t> parts;
  for (std::int64_t page = 0; page < data.tokens(); page += 64) {
    std::vector<std::int32_t> starts;
    data.document_starts(page, page + 64, starts);
    const auto length = static_cast<std::int32_t>(64 / (starts.size() + 1));
    for (std::size_t i = 0; i < starts.size(); ++i) {
      EXPECT_EQ(starts[i], static_cast<std::int32_t>(i + 1) * length);
    }
    parts.insert(starts.size() + 1);
  }
  EXPECT_EQ(parts, (std::set<std::size_t>{1, 2, 4}));
}

TEST(RecallShards, SameSeedGivesTheSameFile) {
  const TempFolder folder;
  write_train(kSmall, (folder / "a.bin").string(), 1000);
  write_train(kSmall, (folder / "b.bin").string(), 1000);
  EXPECT_EQ(slurp(folder / "a.bin"), slurp(folder / "b.bin"));
}

TEST(RecallTask, SizesThatGiveNoTaskAreRefused) {
  const auto refused = [](Task task, const std::vector<std::string>& parts) {
    expect_error(ExitCode::kConfig, parts, [&] { task.check(); });
  };
  refused({.length = 64, .shortest = 24, .keys = 16}, {"--shortest is 24", "--length 64"});
  refused({.length = 64, .shortest = 128, .keys = 16}, {"--shortest is 128"});
  refused({.length = 60, .shortest = 30, .keys = 16}, {"--shortest is 30", "multiple of 4"});
  refused({.length = 64, .shortest = 2, .keys = 16}, {"--shortest is 2"});
  refused({.length = 64, .shortest = 16, .keys = 15}, {"--keys is 15", "at least 16"});
  refused({.length = 64, .shortest = 16, .keys = 16, .values = 1}, {"--values is 1"});
  refused({.length = 64, .shortest = 16, .keys = std::int64_t{1} << 60}, {"--keys", "records"});
  EXPECT_NO_THROW(kSmall.check());
}

}  // namespace
}  // namespace nsa::recall
