#include "data/token_shard.h"

#include "data/foreign_bytes.h"
#include "data/shards.h"
#include "support/errors.h"
#include "support/files.h"

namespace nsa::test {
namespace {

using namespace std::string_literals;

TEST(TokenShard, NamesAForeignFormatThatIsNotRead) {
  const TempFolder folder;
  const std::string path = folder.write("a.bin", "BIN.TOK\n\1\0\0\0"s);
  expect_error(ExitCode::kData, {path, "LLMQ", "not in this version"}, [&] { open_shard(path); });
}

/// One shard of each format with ids 1, 2 and 3.
class OneOfEach : public ::testing::Test {
 protected:
  OneOfEach() {
    write_shard(nsa_, {{1, 2, 3}});
    folder_.write("llmc.bin", llmc_bytes<std::uint16_t>({1, 2, 3}));
    folder_.write("megatron.bin", raw_tokens<std::uint16_t>({1, 2, 3}));
    folder_.write("megatron.idx", megatron_index(8, 2, {3}, {0, 1}));
  }
  TempFolder folder_;
  std::string nsa_ = folder_.file("nsa.bin");
  std::string llmc_ = folder_.file("llmc.bin");
  std::string megatron_ = folder_.file("megatron.bin");
};

TEST_F(OneOfEach, IsToldByItsMagicOrItsIndex) {
  EXPECT_EQ(open_shard(nsa_).format, ShardFormat::kNsa);
  EXPECT_EQ(open_shard(llmc_).format, ShardFormat::kLlmc);
  EXPECT_EQ(open_shard(megatron_).format, ShardFormat::kMegatron);
}

TEST_F(OneOfEach, MustBeOfTheFormatThatIsWanted) {
  for (const std::string& path : {nsa_, llmc_, megatron_}) {
    for (const auto format : {ShardFormat::kNsa, ShardFormat::kLlmc, ShardFormat::kMegatron}) {
      const std::string name = shard_format_name(format);
      if (path == folder_.file(name + ".bin")) {
        EXPECT_EQ(open_shard(path, format).count, 3);
      } else {
        expect_error(ExitCode::kData, {path, "data.format is " + name},
                     [&] { open_shard(path, format); });
      }
    }
  }
}

// The tokens of a pair are any bytes, a magic number of another format among them.
TEST_F(OneOfEach, AWantedMegatronPairMayBeginLikeAnotherFormat) {
  folder_.write("megatron.bin", llmc_bytes<std::uint16_t>({1, 2, 3}));
  EXPECT_EQ(open_shard(megatron_).format, ShardFormat::kLlmc);
  const TokenShard shard = open_shard(megatron_, ShardFormat::kMegatron);
  EXPECT_EQ(shard.count, 3);
  EXPECT_EQ(shard.id(1), 20240520 >> 16);
}

TEST(TokenShard, SendsTextToTheTokenizer) {
  const TempFolder folder;
  for (const std::string& bytes : {"{\"text\": \"hello\"}\n"s, "\x1f\x8b\x08\x00"s}) {
    const std::string path = folder.write("a.jsonl", bytes);
    expect_error(ExitCode::kData, {path, "nsa_tokenize encode"}, [&] { open_shard(path); });
  }
}

TEST(TokenShard, ListsTheKnownFormatsForAnythingElse) {
  const TempFolder folder;
  const std::string path = folder.write("a.bin", "\1\2\3\xFF"s);
  expect_error(ExitCode::kData, {path, "01 02 03 ff", "nsa"}, [&] { open_shard(path); });
}

TEST(TokenShard, ToldAFolderAsksForItsShards) {
  const TempFolder folder;
  expect_error(ExitCode::kData, {folder.path(), "*.bin"}, [&] { open_shard(folder.path()); });
}

TEST(TokenShard, ReadsAnyRange) {
  const TempFolder folder;
  write_shard(folder.file("a"), {counting(0, 100)});
  const TokenShard shard = open_shard(folder.file("a"));
  Ids part(10);
  shard.read(37, part);
  EXPECT_EQ(part, counting(37, 47));
  EXPECT_EQ(shard.id(99), 99);
  EXPECT_EQ(shard.byte_offset(3), 70);
}

}  // namespace
}  // namespace nsa::test
