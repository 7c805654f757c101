#include "data/token_dataset.h"

#include <cmath>
#include <cstring>
#include <unistd.h>

#include "data/shards.h"
#include "support/errors.h"
#include "support/files.h"

namespace nsa::test {
namespace {

namespace fs = std::filesystem;

Ids read(const TokenDataset& data, std::int64_t begin, std::int64_t count) {
  Ids ids(static_cast<std::size_t>(count));
  data.read(begin, ids);
  return ids;
}

Ids starts(const TokenDataset& data, std::int64_t begin, std::int64_t end) {
  Ids out;
  data.document_starts(begin, end, out);
  return out;
}

/// Tokens 0..99 in shards of 30, 5 and 65 tokens, documents of 10 in the first and of 5 then.
class ThreeShards : public ::testing::Test {
 protected:
  ThreeShards() {
    write_shard(folder_.file("s_0.bin"), {counting(0, 10), counting(10, 20), counting(20, 30)});
    write_shard(folder_.file("s_1.bin"), {counting(30, 35)});
    std::vector<Ids> rest;
    for (std::int32_t at = 35; at < 100; at += 5) rest.push_back(counting(at, at + 5));
    write_shard(folder_.file("s_2.bin"), rest);
  }
  TempFolder folder_;
};

TEST_F(ThreeShards, AreJoinedInOrderOfTheirNames) {
  const TokenDataset data({folder_.file("s_*.bin")});
  EXPECT_EQ(data.shards(), 3);
  EXPECT_EQ(data.tokens(), 100);
  EXPECT_EQ(read(data, 0, 100), counting(0, 100));
  EXPECT_EQ(read(data, 25, 15), counting(25, 40));
  EXPECT_EQ(data.vocab_size(), 512);
  EXPECT_EQ(data.tokenizer(), 7U);
  EXPECT_TRUE(data.has_documents());
}

TEST_F(ThreeShards, AFileThatTwoPatternsNameIsRefused) {
  expect_error(ExitCode::kData, {folder_.file("s_2.bin"), "named twice", "s_*.bin"}, [&] {
    TokenDataset({folder_.file("s_2.bin"), folder_.file("s_*.bin")});
  });
  fs::create_symlink(folder_.file("s_0.bin"), folder_.file("link.bin"));
  expect_error(ExitCode::kData, {folder_.file("s_0.bin"), "the same file as", "link.bin"},
               [&] { TokenDataset({folder_.file("*.bin")}); });
}

TEST_F(ThreeShards, TellWhereDocumentsStartInsideARange) {
  const TokenDataset data({folder_.file("s_*.bin")});
  EXPECT_EQ(starts(data, 0, 30), (Ids{10, 20}));
  EXPECT_EQ(starts(data, 10, 21), Ids{10});
  EXPECT_EQ(starts(data, 18, 42), (Ids{2, 12, 17, 22}));
  EXPECT_EQ(starts(data, 31, 35), Ids{});
}

TEST_F(ThreeShards, ReadingBehindTheEndIsRefused) {
  const TokenDataset data({folder_.file("s_*.bin")});
  EXPECT_THROW(read(data, 99, 2), Error);
  EXPECT_THROW(read(data, -1, 2), Error);
}

TEST_F(ThreeShards, StatisticsCountEverything) {
  const TokenDataset data({folder_.file("s_*.bin")});
  const TokenStatistics statistics = data.check_tokens(512);
  EXPECT_EQ(statistics.tokens, 100);
  EXPECT_EQ(statistics.documents, 17);
  EXPECT_EQ(statistics.largest_id, 99);
  EXPECT_NEAR(statistics.unigram_entropy, std::log(100.0), 1e-12);  // a hundred ids, once each
}

TEST_F(ThreeShards, AnIdOutsideTheVocabularyIsNamedWithFileAndPlace) {
  const TokenDataset data({folder_.file("s_*.bin")});
  expect_error(ExitCode::kData,
               {folder_.file("s_2.bin"), "token 5 ", "byte 74", "id 40", "vocabulary of 40"},
               [&] { data.check_tokens(40); });
}

TEST_F(ThreeShards, FingerprintKnowsContentNotPlace) {
  const std::uint32_t before = TokenDataset({folder_.file("s_*.bin")}).fingerprint();
  const TempFolder other;
  for (const char* name : {"s_0.bin", "s_1.bin", "s_2.bin"}) {
    fs::copy(folder_.file(name), other.file(name));
  }
  EXPECT_EQ(TokenDataset({other.file("*.bin")}).fingerprint(), before);
  write_shard(other.file("s_1.bin"), {{30, 31, 32, 33, 35}});
  EXPECT_NE(TokenDataset({other.file("*.bin")}).fingerprint(), before);
  fs::remove(other.file("s_1.bin"));
  EXPECT_NE(TokenDataset({other.file("*.bin")}).fingerprint(), before);
}

TEST_F(ThreeShards, OfTwoTokenizersAreRefused) {
  write_shard(folder_.file("s_3.bin"), {{1}}, {.vocab_size = 512, .tokenizer = 8, .eos_id = 1});
  expect_error(ExitCode::kData, {"s_3.bin", "00000007", "00000008"},
               [&] { const TokenDataset data({folder_.file("s_*.bin")}); });
}

TEST(TokenDataset, EntropyIsThatOfTheCounts) {
  const TempFolder folder;
  Ids ids(70000, 3);  // more than one block of the scan
  for (std::size_t i = 0; i < ids.size(); i += 4) ids[i] = 65536;
  write_shard(folder.file("a"), {ids}, {.vocab_size = 70000, .tokenizer = 0, .eos_id = -1});
  const TokenStatistics statistics = TokenDataset({folder.file("a")}).check_tokens(65537);
  EXPECT_EQ(statistics.largest_id, 65536);
  EXPECT_NEAR(statistics.unigram_entropy, -0.75 * std::log(0.75) - 0.25 * std::log(0.25), 1e-12);
}

TEST(TokenDataset, AnEmptyShardChangesNothing) {
  const TempFolder folder;
  write_shard(folder.file("0"), {});
  write_shard(folder.file("1"), {counting(0, 4)});
  write_shard(folder.file("2"), {});
  write_shard(folder.file("3"), {counting(4, 8)});
  const TokenDataset data({folder.file("?")});
  EXPECT_EQ(read(data, 0, 8), counting(0, 8));
  EXPECT_EQ(starts(data, 0, 8), Ids{4});
  EXPECT_TRUE(data.has_documents());
}

// A file with a hole: more tokens than 32 bits can address in bytes, and hardly any disk.
TEST(TokenDataset, ReadsBehindFourGibibytes) {
  const TempFolder folder;
  const std::int64_t tokens = (std::int64_t{1} << 31) + 1000;
  NsaShardHeader header;
  header.tokens = tokens;
  header.vocab_size = 512;
  const std::string path =
      folder.write("big.bin", {reinterpret_cast<const char*>(&header), sizeof header});
  const std::int64_t ids_end = 64 + 2 * tokens;  // a multiple of 8
  ASSERT_EQ(::truncate(path.c_str(), ids_end), 0);
  {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    const std::uint16_t last = 321;
    file.seekp(ids_end - 2);
    file.write(reinterpret_cast<const char*>(&last), sizeof last);
  }
  const TokenDataset data({path});
  EXPECT_EQ(data.tokens(), tokens);
  EXPECT_EQ(read(data, tokens - 3, 3), (Ids{0, 0, 321}));
  EXPECT_FALSE(data.has_documents());
}

TEST(TokenDataset, NothingNamedIsADataError) {
  expect_error(ExitCode::kData, {"at least one file"}, [] { const TokenDataset data({}); });
}

}  // namespace
}  // namespace nsa::test
