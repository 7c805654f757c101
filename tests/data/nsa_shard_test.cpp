#include "data/nsa_shard.h"

#include <cstring>
#include <functional>

#include "data/shards.h"
#include "support/errors.h"
#include "support/files.h"

namespace nsa::test {
namespace {

Ids read_all(const TokenShard& shard) {
  Ids ids(static_cast<std::size_t>(shard.count));
  shard.read(0, ids);
  return ids;
}

TEST(NsaShard, GivesBackWhatWasWritten) {
  const TempFolder folder;
  const auto documents = random_documents(1, 512, {3, 1, 7, 20});
  write_shard(folder.file("a.bin"), documents, {.vocab_size = 512, .tokenizer = 99, .eos_id = 2});
  const TokenShard shard = open_shard(folder.file("a.bin"));
  EXPECT_EQ(read_all(shard), joined(documents));
  EXPECT_EQ(std::vector<std::int64_t>(shard.document_starts.begin(), shard.document_starts.end()),
            (std::vector<std::int64_t>{0, 3, 4, 11}));
  EXPECT_EQ(shard.vocab_size, 512);
  EXPECT_EQ(shard.tokenizer, 99U);
  EXPECT_EQ(shard.eos_id, 2);
  EXPECT_EQ(shard.id_bytes, 2);
}

TEST(NsaShard, TakesFourBytesAboveAVocabularyOf65536) {
  const TempFolder folder;
  write_shard(folder.file("two"), {{65535}}, {.vocab_size = 65536, .tokenizer = 0, .eos_id = -1});
  write_shard(folder.file("four"), {{65536, 0, 5}},
              {.vocab_size = 65537, .tokenizer = 0, .eos_id = -1});
  EXPECT_EQ(open_shard(folder.file("two")).id_bytes, 2);
  EXPECT_EQ(read_all(open_shard(folder.file("two"))), Ids{65535});
  EXPECT_EQ(open_shard(folder.file("four")).id_bytes, 4);
  EXPECT_EQ(read_all(open_shard(folder.file("four"))), (Ids{65536, 0, 5}));
}

// The layout that docs/formats.md promises to other programs, byte by byte.
TEST(NsaShard, HasTheLayoutOfTheDocumentation) {
  const TempFolder folder;
  write_shard(folder.file("a"), {{1, 2, 3}, {4, 5}},
              {.vocab_size = 300, .tokenizer = 0x01020304, .eos_id = 1});
  const std::string bytes = read_bytes(folder.file("a"));
  ASSERT_EQ(bytes.size(), 64U + 10 + 6 + 16);
  const auto number = [&](std::size_t at, std::size_t width) {
    std::int64_t value = 0;
    std::memcpy(&value, bytes.data() + at, width);
    return value;
  };
  EXPECT_EQ(bytes.substr(0, 8), "NSATOKEN");
  EXPECT_EQ(number(8, 4), 1);
  EXPECT_EQ(number(12, 4), 2);
  EXPECT_EQ(number(16, 8), 5);
  EXPECT_EQ(number(24, 8), 300);
  EXPECT_EQ(number(32, 4), 0x01020304);
  EXPECT_EQ(number(36, 4), 1);
  EXPECT_EQ(number(40, 8), 2);
  EXPECT_EQ(bytes.substr(48, 16), std::string(16, '\0'));
  EXPECT_EQ(number(64 + 8, 2), 5);
  EXPECT_EQ(number(80, 8), 0);
  EXPECT_EQ(number(88, 8), 3);
}

TEST(NsaShard, WriterRefusesIdsOutsideTheVocabulary) {
  const TempFolder folder;
  for (const std::int32_t id : {512, -1}) {
    expect_error(ExitCode::kData, {std::to_string(id), "512"}, [&] {
      write_shard(folder.file("a"), {{1, id}});
    });
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

struct Damage {
  const char* name;
  std::function<void(std::string&)> apply;
  const char* told;  ///< a part of the message
};

template <class T>
void put(std::string& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

TEST(NsaShard, EveryDamageIsTold) {
  // Two documents of 3 and 2 tokens: ids at 64, document starts at 80.
  const std::vector<Damage> damages = {
      {"version", [](std::string& b) { put<std::uint32_t>(b, 8, 2); }, "version 2"},
      {"dtype", [](std::string& b) { put<std::uint32_t>(b, 12, 3); }, "3 bytes per token"},
      {"negative tokens", [](std::string& b) { put<std::int64_t>(b, 16, -5); }, "-5 tokens"},
      {"huge tokens", [](std::string& b) { put<std::int64_t>(b, 16, INT64_MAX); }, "tokens"},
      {"one token more", [](std::string& b) { put<std::int64_t>(b, 16, 9); }, "wants"},
      {"vocabulary", [](std::string& b) { put<std::int64_t>(b, 24, 65537); }, "65537"},
      {"documents", [](std::string& b) { put<std::int64_t>(b, 40, 6); }, "6 documents"},
      {"negative documents", [](std::string& b) { put<std::int64_t>(b, 40, -1); }, "-1 documents"},
      {"fewer documents", [](std::string& b) { put<std::int64_t>(b, 40, 1); }, "wants 88"},
      {"reserved", [](std::string& b) { b[63] = 1; }, "reserved"},
      {"header cut off", [](std::string& b) { b.resize(63); }, "63 bytes"},
      {"tail cut off", [](std::string& b) { b.resize(b.size() - 1); }, "95 bytes"},
      {"longer", [](std::string& b) { b += '\0'; }, "97 bytes"},
      {"no token id", [](std::string& b) { put<std::int32_t>(b, 36, -2); }, "end-of-text token -2"},
      {"outside", [](std::string& b) { put<std::int32_t>(b, 36, 512); }, "end-of-text token 512"},
      {"late start", [](std::string& b) { put<std::int64_t>(b, 80, 1); }, "token 1, wanted 0"},
      {"unsorted", [](std::string& b) { put<std::int64_t>(b, 88, 0); }, "document 1 starts"},
      {"before the start", [](std::string& b) { put<std::int64_t>(b, 80, -1); }, "document 0"},
      {"behind the end", [](std::string& b) { put<std::int64_t>(b, 88, 5); }, "less than 5"},
  };
  const TempFolder folder;
  write_shard(folder.file("good"), {{1, 2, 3}, {4, 5}});
  const std::string good = read_bytes(folder.file("good"));
  for (const Damage& damage : damages) {
    SCOPED_TRACE(damage.name);
    std::string bytes = good;
    damage.apply(bytes);
    const std::string path = folder.write("bad.bin", bytes);
    expect_error(ExitCode::kData, {path, damage.told}, [&] { open_shard(path); });
  }
}

}  // namespace
}  // namespace nsa::test
