#include "data/token_scan.h"

#include <cmath>
#include <cstdlib>

#include "data/shards.h"
#include "data/token_dataset.h"
#include "support/errors.h"
#include "support/files.h"

namespace nsa::test {
namespace {

using Lengths = std::vector<std::int64_t>;

DocumentLengths lengths_of(Lengths lengths) {
  return summarize(lengths);
}

TEST(DocumentLengths, AreThoseOfTheDocuments) {
  const DocumentLengths found = lengths_of({7, 1, 4, 2});
  EXPECT_EQ(found.shortest, 1);
  EXPECT_EQ(found.median, 2);
  EXPECT_EQ(found.longest, 7);
  EXPECT_EQ(found.p99, 7);
  EXPECT_EQ(found.mean, 3.5);
  EXPECT_EQ(lengths_of({9, 1, 4}).median, 4);
  EXPECT_EQ(lengths_of({5}).p99, 5);
}

TEST(DocumentLengths, OneOfAHundredMayBeLongerThanThe99Percent) {
  Lengths lengths(100, 10);
  lengths[17] = 1000;
  EXPECT_EQ(lengths_of(lengths).p99, 10);
  lengths[3] = 900;
  EXPECT_EQ(lengths_of(lengths).p99, 900);
}

/// 3,000,000 tokens in two shards, more than a worker takes at a time.
class LongShards : public ::testing::Test {
 protected:
  static constexpr std::int32_t kVocabulary = 1000;
  LongShards() {
    for (std::int32_t i = 0; i < 3'000'000; ++i) ids_.push_back(i / 7 % (kVocabulary - 1));
  }
  TokenStatistics check(std::int64_t vocab_size = kVocabulary) const {
    const auto half = ids_.begin() + 2'500'000;
    const ShardLabel label{.vocab_size = kVocabulary};
    write_shard(folder_.file("0.bin"), {Ids(ids_.begin(), half)}, label, ShardFormat::kLlmc);
    write_shard(folder_.file("1.bin"), {Ids(half, ids_.end())}, label, ShardFormat::kLlmc);
    return TokenDataset({folder_.file("*.bin")}, {.separator = Separator{.id = kVocabulary - 1}})
        .check_tokens(vocab_size);
  }
  Ids ids_;
  TempFolder folder_;
};

TEST_F(LongShards, AreCountedWhole) {
  std::vector<std::int64_t> counts(kVocabulary);
  for (const std::int32_t id : ids_) ++counts[static_cast<std::size_t>(id)];
  double entropy = 0;
  for (const std::int64_t count : counts) {
    const double share = static_cast<double>(count) / static_cast<double>(ids_.size());
    if (count > 0) entropy -= share * std::log(share);
  }
  const TokenStatistics found = check();
  EXPECT_EQ(found.tokens, 3'000'000);
  EXPECT_EQ(found.largest_id, kVocabulary - 2);
  EXPECT_NEAR(found.unigram_entropy, entropy, 1e-12);
  EXPECT_EQ(found.documents, 1);
}

TEST_F(LongShards, TheThreadCountChangesNothing) {
  for (std::size_t i = 1234; i < ids_.size(); i += 77'777) ids_[i] = kVocabulary - 1;
  setenv("OMP_NUM_THREADS", "1", 1);
  const TokenStatistics one = check();
  setenv("OMP_NUM_THREADS", "3", 1);
  const TokenStatistics three = check();
  unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(one.unigram_entropy, three.unigram_entropy);
  EXPECT_EQ(one.documents, three.documents);
  EXPECT_EQ(one.documents, 40);
  EXPECT_EQ(three.lengths.median, 77'777);
  EXPECT_EQ(three.lengths.shortest, 1234);
}

TEST_F(LongShards, TheFirstIdOutsideIsNamedWhoeverMeetsOneFirst) {
  ids_[2'400'000] = 998;
  ids_[1'100'000] = 998;
  for (std::int32_t& id : ids_) {
    if (id < 998) id %= 500;
  }
  for (std::size_t i = 0; i < 1'100'000; ++i) ids_[i] %= 500;
  expect_error(ExitCode::kData, {folder_.file("0.bin"), "token 1100000 ", "id 998"},
               [&] { check(998); });
}

TEST(TokenScan, DocumentsOfAnIndexHaveTheirLengths) {
  const TempFolder folder;
  write_shard(folder.file("0.bin"), {counting(0, 10), counting(10, 13)});
  write_shard(folder.file("1.bin"), {counting(13, 14), counting(14, 30)});
  const TokenStatistics found = TokenDataset({folder.file("*.bin")}).check_tokens(512);
  EXPECT_EQ(found.documents, 4);
  EXPECT_EQ(found.lengths.shortest, 1);
  EXPECT_EQ(found.lengths.median, 3);
  EXPECT_EQ(found.lengths.longest, 16);
  EXPECT_EQ(found.lengths.mean, 7.5);
}

TEST(TokenScan, ADocumentMayGoOnInTheNextShard) {
  const TempFolder folder;
  const ShardLabel label{.vocab_size = 10};
  write_shard(folder.file("0.bin"), {{9, 1, 2, 9, 3}}, label, ShardFormat::kLlmc);
  write_shard(folder.file("1.bin"), {{4, 5, 9, 6}}, label, ShardFormat::kLlmc);
  const auto check_with = [&](bool before) {
    return TokenDataset({folder.file("*.bin")}, {.separator = Separator{.id = 9, .before = before}})
        .check_tokens(10);
  };
  const TokenStatistics before = check_with(true);  // 9 1 2 | 9 3 4 5 | 9 6
  EXPECT_EQ(before.documents, 3);
  EXPECT_EQ(before.lengths.longest, 4);
  EXPECT_EQ(before.lengths.shortest, 2);
  const TokenStatistics after = check_with(false);  // 9 | 1 2 9 | 3 4 5 9 | 6
  EXPECT_EQ(after.documents, 4);
  EXPECT_EQ(after.lengths.longest, 4);
  EXPECT_EQ(after.lengths.shortest, 1);
}

}  // namespace
}  // namespace nsa::test
