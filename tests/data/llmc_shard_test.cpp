#include "data/llmc_shard.h"

#include <functional>
#include <unistd.h>

#include "data/foreign_bytes.h"
#include "data/shards.h"
#include "data/token_dataset.h"
#include "support/errors.h"
#include "support/files.h"

namespace nsa::test {
namespace {

Ids read_all(const TokenShard& shard) {
  Ids ids(static_cast<std::size_t>(shard.count));
  shard.read(0, ids);
  return ids;
}

TEST(LlmcShard, ReadsBothKinds) {
  const TempFolder folder;
  const TokenShard narrow =
      open_shard(folder.write("a.bin", llmc_bytes<std::uint16_t>({50256, 1, 65535})));
  EXPECT_EQ(narrow.format, ShardFormat::kLlmc);
  EXPECT_EQ(narrow.id_bytes, 2);
  EXPECT_EQ(read_all(narrow), (Ids{50256, 1, 65535}));
  EXPECT_EQ(narrow.byte_offset(2), 1028);
  const TokenShard wide =
      open_shard(folder.write("b.bin", llmc_bytes<std::uint32_t>({128000, 7, 0})));
  EXPECT_EQ(wide.format, ShardFormat::kLlmc);
  EXPECT_EQ(wide.id_bytes, 4);
  EXPECT_EQ(read_all(wide), (Ids{128000, 7, 0}));
  EXPECT_TRUE(wide.document_starts.empty());
}

TEST(LlmcShard, AnEmptyOneIsNoError) {
  const TempFolder folder;
  EXPECT_EQ(open_shard(folder.write("a.bin", llmc_bytes<std::uint16_t>({}))).count, 0);
}

TEST(LlmcShard, TheWriterGivesTheBytesOfTheTable) {
  const TempFolder folder;
  write_shard(folder.file("a.bin"), {{1, 2, 3}, {}, {4}},
              {.vocab_size = 65536, .tokenizer = 7, .eos_id = 1}, ShardFormat::kLlmc);
  EXPECT_EQ(read_bytes(folder.file("a.bin")), llmc_bytes<std::uint16_t>({1, 2, 3, 4}));
  write_shard(folder.file("b.bin"), {{1, 65536}},
              {.vocab_size = 65537, .tokenizer = 7, .eos_id = 1}, ShardFormat::kLlmc);
  EXPECT_EQ(read_bytes(folder.file("b.bin")), llmc_bytes<std::uint32_t>({1, 65536}));
}

TEST(LlmcShard, TheWriterRefusesIdsOutsideTheVocabulary) {
  const TempFolder folder;
  for (const std::int32_t id : {512, -1}) {
    expect_error(ExitCode::kData, {folder.file("a.bin"), std::to_string(id), "512"}, [&] {
      write_shard(folder.file("a.bin"), {{1, id}}, {.vocab_size = 512, .tokenizer = 7, .eos_id = 1},
                  ShardFormat::kLlmc);
    });
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

struct Damage {
  const char* name;
  std::function<void(std::string&)> apply;
  std::vector<std::string> told;  ///< parts of the message: found, wanted
};

void expect_told(const std::string& good, const std::vector<Damage>& damages) {
  const TempFolder folder;
  for (const Damage& damage : damages) {
    SCOPED_TRACE(damage.name);
    std::string bytes = good;
    damage.apply(bytes);
    std::vector<std::string> told = damage.told;
    told.push_back(folder.write("bad.bin", bytes));
    expect_error(ExitCode::kData, told, [&] { open_shard(folder.file("bad.bin")); });
  }
}

TEST(LlmcShard, EveryDamageOfTheNarrowKindIsTold) {
  expect_told(
      llmc_bytes<std::uint16_t>({1, 2, 3}),
      {{"magic", [](auto& b) { b[3] = 2; }, {"no token format known"}},
       {"version of the other kind", [](auto& b) { put(b, 4, 7); }, {"version 7", "version 1 "}},
       {"version 0", [](auto& b) { put(b, 4, 0); }, {"version 0", "version 1 "}},
       {"negative count", [](auto& b) { put(b, 8, -3); }, {"-3 tokens", "at least 0 tokens"}},
       {"one token more", [](auto& b) { put(b, 8, 4); }, {"1030 bytes", "4 tokens", "1032"}},
       {"one token less", [](auto& b) { put(b, 8, 2); }, {"1030 bytes", "2 tokens", "1028"}},
       {"largest count", [](auto& b) { put(b, 8, INT32_MAX); }, {"1030 bytes", "4294968318"}},
       {"half a token", [](auto& b) { b.pop_back(); }, {"1029 bytes", "1030"}},
       {"a byte more", [](auto& b) { b += '\0'; }, {"1031 bytes", "1030"}},
       {"header cut off", [](auto& b) { b.resize(1023); }, {"1023 bytes", "1024-byte header"}},
       {"only the magic", [](auto& b) { b.resize(4); }, {"4 bytes", "1024-byte header"}},
       {"first reserved", [](auto& b) { put(b, 12, 5); }, {"at 12 ", "hold 5", "wanted 0"}},
       {"last reserved", [](auto& b) { put(b, 1020, 9); }, {"at 1020 ", "hold 9"}}});
}

TEST(LlmcShard, EveryDamageOfTheWideKindIsTold) {
  expect_told(
      llmc_bytes<std::uint32_t>({1, 2, 3}),
      {{"version of the other kind", [](auto& b) { put(b, 4, 1); }, {"version 1", "version 7 "}},
       {"magic of the narrow kind", [](auto& b) { put(b, 0, 20240520); }, {"version 7"}},
       {"one token more", [](auto& b) { put(b, 8, 4); }, {"1036 bytes", "1040"}},
       {"a token cut off", [](auto& b) { b.resize(1032); }, {"1032 bytes", "1036"}}});
}

TEST(LlmcShard, OtherFilesOfItAreNamed) {
  const std::string good = llmc_bytes<std::uint16_t>({1});
  expect_told(good, {{"evaluation", [](auto& b) { put(b, 0, 20240522); }, {"an evaluation set"}},
                     {"model", [](auto& b) { put(b, 0, 20240326); }, {"a model"}},
                     {"state", [](auto& b) { put(b, 0, 20240527); }, {"the state of a run"}},
                     {"tokenizer", [](auto& b) { put(b, 0, 20240328); }, {"a tokenizer"}},
                     {"llama", [](auto& b) { put(b, 0, 20240803); }, {"a Llama 3 model"}}});
}

// The largest shard of the format, nearly all of it a hole: its bytes need more than 32 bits.
TEST(LlmcShard, ReadsBehindFourGibibytes) {
  const TempFolder folder;
  const std::int64_t tokens = kLlmcMostTokens;
  std::string bytes = llmc_bytes<std::uint16_t>({});
  put(bytes, 8, static_cast<std::int32_t>(tokens));
  const std::string path = folder.write("big.bin", bytes);
  ASSERT_EQ(::truncate(path.c_str(), 1024 + 2 * tokens), 0);
  {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(1024 + 2 * (tokens - 1));
    file.write("\x41\x01", 2);
  }
  folder.write("c.bin", llmc_bytes<std::uint16_t>({5, 6}));
  const TokenDataset data({folder.file("*.bin")});
  EXPECT_EQ(data.tokens(), tokens + 2);
  Ids ids(4);
  data.read(tokens - 2, ids);
  EXPECT_EQ(ids, (Ids{0, 321, 5, 6}));
}

}  // namespace
}  // namespace nsa::test
