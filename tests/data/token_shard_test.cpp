#include "data/token_shard.h"

#include <cstring>

#include "data/shards.h"
#include "support/errors.h"
#include "support/files.h"

namespace nsa::test {
namespace {

using namespace std::string_literals;

std::string llmc_header(std::int32_t magic) {
  std::string bytes(1024, '\0');
  std::memcpy(bytes.data(), &magic, sizeof magic);
  return bytes;
}

TEST(TokenShard, NamesForeignFormatsThatAreNotRead) {
  const TempFolder folder;
  const std::vector<std::pair<std::string, std::string>> files = {
      {llmc_header(20240520), "llm.c"},
      {llmc_header(20240801), "llm.c"},
      {"MMIDIDX\0\0\1\0\0\0"s, "Megatron"},
      {"BIN.TOK\n\1\0\0\0"s, "LLMQ"}};
  for (const auto& [bytes, format] : files) {
    const std::string path = folder.write("a.bin", bytes);
    expect_error(ExitCode::kData, {path, format, "not in this version"}, [&] { open_shard(path); });
  }
}

TEST(TokenShard, KnowsTheTokensOfAMegatronPairByTheIndexBeside) {
  const TempFolder folder;
  const std::string path = folder.write("a.bin", "\1\0\2\0\3\0"s);
  folder.write("a.idx", "MMIDIDX\0\0\1\0\0\0"s);
  expect_error(ExitCode::kData, {path, "Megatron", "not in this version"},
               [&] { open_shard(path); });
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
