#include "data/megatron_shard.h"

#include <functional>
#include <unistd.h>

#include "data/foreign_bytes.h"
#include "data/shards.h"
#include "data/token_dataset.h"
#include "support/errors.h"
#include "support/files.h"

namespace nsa::test {
namespace {

using Starts = std::vector<std::int64_t>;

Ids read_all(const TokenShard& shard) {
  Ids ids(static_cast<std::size_t>(shard.count));
  shard.read(0, ids);
  return ids;
}

Starts starts_of(const TokenShard& shard) {
  return {shard.document_starts.begin(), shard.document_starts.end()};
}

template <class Id>
std::string write_pair(const TempFolder& folder, int type, const std::vector<std::int64_t>& ids) {
  folder.write("a.idx",
               megatron_index(type, sizeof(Id), {static_cast<std::int32_t>(ids.size())}, {0, 1}));
  return folder.write("a.bin", raw_tokens<Id>(ids));
}

// Three sequences: the array of pointers stands at 34 + 12, on no multiple of 8.
TEST(MegatronShard, ReadsSequencesAndDocuments) {
  const TempFolder folder;
  folder.write("a.idx", megatron_index(8, 2, {2, 1, 3}, {0, 2, 3}));
  folder.write("a.bin", raw_tokens<std::uint16_t>({1, 2, 3, 4, 5, 65535}));
  for (const char* name : {"a.bin", "a.idx"}) {
    const TokenShard shard = open_shard(folder.file(name));
    EXPECT_EQ(shard.path, folder.file("a.bin"));
    EXPECT_EQ(shard.format, ShardFormat::kMegatron);
    EXPECT_EQ(read_all(shard), (Ids{1, 2, 3, 4, 5, 65535}));
    EXPECT_EQ(starts_of(shard), (Starts{0, 3}));
    EXPECT_EQ(shard.empty_documents, 0);
  }
}

TEST(MegatronShard, ReadsEveryTypeOfTokens) {
  const TempFolder folder;
  EXPECT_EQ(read_all(open_shard(write_pair<std::uint8_t>(folder, 1, {0, 255}))), (Ids{0, 255}));
  EXPECT_EQ(read_all(open_shard(write_pair<std::uint16_t>(folder, 8, {0, 65535}))),
            (Ids{0, 65535}));
  EXPECT_EQ(read_all(open_shard(write_pair<std::int32_t>(folder, 4, {0, INT32_MAX}))),
            (Ids{0, INT32_MAX}));
  EXPECT_EQ(read_all(open_shard(write_pair<std::int64_t>(folder, 5, {0, INT32_MAX}))),
            (Ids{0, INT32_MAX}));
}

TEST(MegatronShard, AnIdBelowZeroOrAboveTheVocabularyIsNamedWithItsPlace) {
  const TempFolder folder;
  const auto check_all = [&] { TokenDataset({folder.file("a.bin")}).check_tokens(1000); };
  write_pair<std::int32_t>(folder, 4, {1, -1});
  expect_error(ExitCode::kData, {folder.file("a.bin"), "token 1 ", "byte 4", "id -1"}, check_all);
  write_pair<std::int64_t>(folder, 5, {1, 2, -7});
  expect_error(ExitCode::kData, {"token 2 ", "byte 16", "id -7"}, check_all);
  write_pair<std::int64_t>(folder, 5, {(std::int64_t{1} << 32) + 1});
  expect_error(ExitCode::kData, {"token 0 ", "id 4294967297", "1000"}, check_all);
  write_pair<std::uint16_t>(folder, 8, {1000});
  expect_error(ExitCode::kData, {"id 1000", "vocabulary of 1000"}, check_all);
}

TEST(MegatronShard, DocumentsWithoutTokensAreLeftOutAndCounted) {
  const TempFolder folder;
  // The first document has no sequence, the second an empty one, the last none.
  folder.write("a.idx", megatron_index(8, 2, {0, 2, 1}, {0, 0, 1, 2, 3, 3}));
  folder.write("a.bin", raw_tokens<std::uint16_t>({1, 2, 3}));
  const TokenShard shard = open_shard(folder.file("a.bin"));
  EXPECT_EQ(starts_of(shard), (Starts{0, 2}));
  EXPECT_EQ(shard.empty_documents, 3);
  const TokenStatistics found = TokenDataset({folder.file("a.bin")}).check_tokens(10);
  EXPECT_EQ(found.documents, 2);
  EXPECT_EQ(found.empty_documents, 3);
}

TEST(MegatronShard, WithoutDocumentsIsEmpty) {
  const TempFolder folder;
  folder.write("a.idx", megatron_index(8, 2, {}, {0}));
  folder.write("a.bin", "");
  EXPECT_EQ(open_shard(folder.file("a.bin")).count, 0);
}

TEST(MegatronShard, TheWriterGivesTheBytesOfTheTable) {
  const TempFolder folder;
  write_shard(folder.file("a.bin"), {{1, 2, 3}, {}, {65498}},
              {.vocab_size = 65499, .tokenizer = 7, .eos_id = 1}, ShardFormat::kMegatron);
  EXPECT_EQ(read_bytes(folder.file("a.bin")), raw_tokens<std::uint16_t>({1, 2, 3, 65498}));
  EXPECT_EQ(read_bytes(folder.file("a.idx")), megatron_index(8, 2, {3, 1}, {0, 1, 2}));
  write_shard(folder.file("b.bin"), {{1}, {65499, 2}},
              {.vocab_size = 65500, .tokenizer = 7, .eos_id = 1}, ShardFormat::kMegatron);
  EXPECT_EQ(read_bytes(folder.file("b.bin")), raw_tokens<std::int32_t>({1, 65499, 2}));
  EXPECT_EQ(read_bytes(folder.file("b.idx")), megatron_index(4, 4, {1, 2}, {0, 1, 2}));
}

TEST(MegatronShard, NeedsBothFiles) {
  const TempFolder folder;
  write_pair<std::uint16_t>(folder, 8, {1, 2});
  std::filesystem::rename(folder.file("a.bin"), folder.file("b.bin"));
  expect_error(ExitCode::kData, {folder.file("a.bin"), "missing", "a.idx"},
               [&] { open_shard(folder.file("a.idx")); });
  expect_error(ExitCode::kData, {folder.file("b.idx"), "missing", "b.bin"},
               [&] { open_shard(folder.file("b.bin"), ShardFormat::kMegatron); });
  expect_error(ExitCode::kData, {folder.file("b.bin"), ".idx"},
               [&] { open_shard(folder.file("b.bin")); });
}

struct Damage {
  const char* name;
  std::function<void(std::string&)> apply;
  std::vector<std::string> told;  ///< parts of the message: found, wanted
};

// Lengths at 34, pointers at 42, document boundaries at 58, 82 bytes in all.
TEST(MegatronShard, EveryDamageOfTheIndexIsTold) {
  const std::vector<Damage> damages = {
      {"magic", [](auto& b) { b[0] = 'X'; }, {"MMIDIDX"}},
      {"empty", [](auto& b) { b.clear(); }, {"MMIDIDX"}},
      {"header cut off", [](auto& b) { b.resize(33); }, {"33 bytes", "34-byte header"}},
      {"version", [](auto& b) { put<std::uint64_t>(b, 9, 2); }, {"version 2", "version 1"}},
      {"i8", [](auto& b) { b[17] = 2; }, {"type 2", "8 (u16)"}},
      {"i16", [](auto& b) { b[17] = 3; }, {"type 3"}},
      {"f64", [](auto& b) { b[17] = 6; }, {"type 6"}},
      {"f32", [](auto& b) { b[17] = 7; }, {"type 7"}},
      {"no type", [](auto& b) { b[17] = 0; }, {"type 0"}},
      {"sequences", [](auto& b) { put<std::uint64_t>(b, 18, 3); }, {"82 bytes", "wants 94"}},
      {"huge sequences", [](auto& b) { put<std::uint64_t>(b, 18, UINT64_MAX); }, {"18446744"}},
      {"no boundary", [](auto& b) { put<std::uint64_t>(b, 26, 0); }, {"0 document indices"}},
      {"boundaries", [](auto& b) { put<std::uint64_t>(b, 26, 4); }, {"82 bytes", "wants 90"}},
      {"huge boundaries", [](auto& b) { put<std::uint64_t>(b, 26, 1ULL << 61U); }, {"23058430"}},
      {"tail cut off", [](auto& b) { b.pop_back(); }, {"81 bytes", "wants 82"}},
      {"longer", [](auto& b) { b += "x"; }, {"83 bytes", "wants 82"}},
      {"modes", [](auto& b) { b += "xy"; }, {"multimodal"}},
      {"negative length", [](auto& b) { put<std::int32_t>(b, 34, -1); }, {"-1 tokens"}},
      {"longer sequence", [](auto& b) { put<std::int32_t>(b, 34, 3); }, {"byte 4", "wanted 6"}},
      {"too long at the end",
       [](auto& b) { put<std::int32_t>(b, 38, 4); },
       {"10 bytes", "4 tokens"}},
      {"negative pointer", [](auto& b) { put<std::int64_t>(b, 42, -2); }, {"byte -2"}},
      {"pointers swapped", [](auto& b) { put<std::int64_t>(b, 50, 0); }, {"byte 0", "wanted 4"}},
      {"huge pointer", [](auto& b) { put<std::int64_t>(b, 42, INT64_MAX / 2); }, {"10 bytes"}},
      {"first boundary", [](auto& b) { put<std::int64_t>(b, 58, 1); }, {"1 to 2", "0 to 2"}},
      {"last boundary", [](auto& b) { put<std::int64_t>(b, 74, 1); }, {"0 to 1", "0 to 2"}},
      {"high boundary", [](auto& b) { put<std::int64_t>(b, 66, 3); }, {"document 0", "most 2"}},
      {"low boundary", [](auto& b) { put<std::int64_t>(b, 66, -1); }, {"document 0", "-1"}},
  };
  const std::string good = megatron_index(8, 2, {2, 3}, {0, 1, 2});
  ASSERT_EQ(good.size(), 82U);
  const TempFolder folder;
  folder.write("a.bin", raw_tokens<std::uint16_t>({1, 2, 3, 4, 5}));
  for (const Damage& damage : damages) {
    SCOPED_TRACE(damage.name);
    std::string bytes = good;
    damage.apply(bytes);
    folder.write("a.idx", bytes);
    std::vector<std::string> told = damage.told;
    told.push_back(folder.file("a."));
    expect_error(ExitCode::kData, told, [&] { open_shard(folder.file("a.bin")); });
  }
}

TEST(MegatronShard, TokensThatAreCutOffAreTold) {
  const TempFolder folder;
  write_pair<std::uint16_t>(folder, 8, {1, 2, 3});
  folder.write("a.bin", raw_tokens<std::uint16_t>({1, 2}));
  expect_error(ExitCode::kData,
               {folder.file("a.bin"), "4 bytes", folder.file("a.idx"), "3 tokens of 2 bytes"},
               [&] { open_shard(folder.file("a.bin")); });
}

// Two sequences of nearly 2^31 tokens, nearly all of them a hole.
TEST(MegatronShard, ReadsBehindFourGibibytes) {
  const TempFolder folder;
  const std::int32_t length = (1 << 30) + 7;
  folder.write("a.idx", megatron_index(8, 2, {length, length}, {0, 1, 2}));
  const std::string path = folder.write("a.bin", "");
  ASSERT_EQ(::truncate(path.c_str(), std::int64_t{4} * length), 0);
  {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(std::int64_t{4} * length - 2);
    file.write("\x41\x01", 2);
  }
  const TokenDataset data({path});
  Ids ids(2);
  data.read(data.tokens() - 2, ids);
  EXPECT_EQ(ids, (Ids{0, 321}));
  std::vector<std::int32_t> starts;
  data.document_starts(length - 5, length + 5, starts);
  EXPECT_EQ(starts, Ids{5});
}

}  // namespace
}  // namespace nsa::test
