#include "data/encode.h"

#include <set>

#include "data/corpora.h"
#include "data/shards.h"
#include "data/token_dataset.h"
#include "data/tokenizer.h"
#include "support/errors.h"
#include "support/files.h"

namespace nsa::test {
namespace {

namespace fs = std::filesystem;

EncodeOptions options_for(const std::string& in, const std::string& out) {
  EncodeOptions options;
  options.corpus.paths = {in};
  options.model = test_corpus().file("tok.model");
  options.out = out;
  return options;
}

/// The documents of the shards, decoded, without their end marks.
std::vector<std::string> documents_of(const std::vector<std::string>& shards) {
  const Tokenizer tokenizer(test_corpus().file("tok.model"));
  std::vector<std::string> texts;
  for (const std::string& path : shards) {
    const TokenShard shard = open_shard(path);
    for (std::size_t d = 0; d < shard.document_starts.size(); ++d) {
      const std::int64_t begin = shard.document_starts[d];
      const std::int64_t end =
          d + 1 < shard.document_starts.size() ? shard.document_starts[d + 1] : shard.count;
      Ids ids(static_cast<std::size_t>(end - begin));
      shard.read(begin, ids);
      EXPECT_EQ(ids.back(), tokenizer.eos_id());
      ids.pop_back();
      texts.push_back(tokenizer.decode(ids));
    }
  }
  return texts;
}

std::vector<std::string> all_texts() {
  std::vector<std::string> texts;
  for (int i = 10; i < 50; ++i) {
    texts.push_back(read_bytes(test_corpus().file("text/" + std::to_string(i) + ".txt")));
  }
  return texts;
}

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

TEST(Encode, DocumentsComeBackInOrderEachWithItsMark) {
  const TempFolder folder;
  const EncodeReport report =
      encode_corpus(options_for(test_corpus().file("text"), folder.file("a")));
  ASSERT_EQ(report.splits.size(), 1U);
  EXPECT_EQ(report.splits[0].shards, std::vector<std::string>{folder.file("a_00000.bin")});
  EXPECT_EQ(documents_of(report.splits[0].shards), all_texts());
  const TokenDataset data({folder.file("a_00000.bin")});
  EXPECT_EQ(data.tokens(), report.tokens());
  EXPECT_EQ(data.vocab_size(), kTestVocabulary);
  EXPECT_EQ(data.tokenizer(), Tokenizer(test_corpus().file("tok.model")).fingerprint());
}

TEST(Encode, ShardsHoldWholeDocumentsUpToTheirLimit) {
  const TempFolder folder;
  EncodeOptions options = options_for(test_corpus().file("text"), folder.file("a"));
  options.shard_tokens = 1500;
  const EncodeReport report = encode_corpus(options);
  EXPECT_GT(report.splits[0].shards.size(), 3U);
  for (const std::string& path : report.splits[0].shards) {
    const TokenShard shard = open_shard(path);
    EXPECT_LE(shard.count, 1500);
    EXPECT_EQ(shard.document_starts[0], 0);
  }
  EXPECT_EQ(documents_of(report.splits[0].shards), all_texts());
}

TEST(Encode, ADocumentAboveTheLimitHasAShardOfItsOwn) {
  const TempFolder folder;
  EncodeOptions options = options_for(test_corpus().file("text"), folder.file("a"));
  options.shard_tokens = 1;
  EXPECT_EQ(encode_corpus(options).splits[0].shards.size(), 40U);
}

TEST(Encode, ValidationIsDisjointAndTogetherComplete) {
  const TempFolder folder;
  EncodeOptions options = options_for(test_corpus().file("text"), folder.path() + "/sub/");
  options.val_fraction = 0.1;
  const EncodeReport report = encode_corpus(options);
  ASSERT_EQ(report.splits.size(), 2U);
  EXPECT_EQ(names_in(folder.file("sub")),
            (std::set<std::string>{"train_00000.bin", "val_00000.bin"}));
  std::vector<std::string> both = documents_of(report.splits[0].shards);
  const std::vector<std::string> val = documents_of(report.splits[1].shards);
  EXPECT_EQ(val.size(), 4U);
  both.insert(both.end(), val.begin(), val.end());
  std::vector<std::string> expected = all_texts();
  std::sort(both.begin(), both.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(both, expected);
}

TEST(Encode, IsRepeatable) {
  const TempFolder folder;
  for (const char* out : {"a", "b"}) {
    EncodeOptions options = options_for(test_corpus().file("text"), folder.file(out));
    options.val_fraction = 0.2;
    encode_corpus(options);
  }
  EXPECT_EQ(read_bytes(folder.file("a_train_00000.bin")),
            read_bytes(folder.file("b_train_00000.bin")));
  EXPECT_EQ(read_bytes(folder.file("a_val_00000.bin")), read_bytes(folder.file("b_val_00000.bin")));
}

TEST(Encode, HeldOutDocumentsAreTheShareAskedForInEveryPart) {
  for (const double fraction : {0.01, 0.05, 0.3, 0.5, 0.9}) {
    std::int64_t held = 0;
    for (std::int64_t i = 0; i < 3000; ++i) {
      held += is_validation(i, fraction) ? 1 : 0;
      if ((i + 1) % 1000 == 0) {
        EXPECT_NEAR(static_cast<double>(held), fraction * static_cast<double>(i + 1), 1.0);
      }
    }
  }
  EXPECT_FALSE(is_validation(0, 0));
}

TEST(Encode, HeldOutDocumentsAreNotAtRegularPlaces) {
  std::set<std::int64_t> places;
  for (std::int64_t i = 0; i < 1000; ++i) {
    if (is_validation(i, 0.1)) places.insert(i % 10);
  }
  EXPECT_GT(places.size(), 5U);
}

TEST(Encode, ShardsOfALongerEarlierRunAreRemoved) {
  const TempFolder folder;
  EncodeOptions options = options_for(test_corpus().file("text"), folder.file("a"));
  options.shard_tokens = 1500;
  const auto before = static_cast<std::int64_t>(encode_corpus(options).splits[0].shards.size());
  folder.write("a_notes.bin", "mine");
  options.shard_tokens = 1'000'000;
  EXPECT_EQ(encode_corpus(options).replaced, before - 1);
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"a_00000.bin", "a_notes.bin"}));
}

TEST(Encode, NoIndexOfAnEarlierRunStaysBesideOtherTokens) {
  const TempFolder folder;
  EncodeOptions options = options_for(test_corpus().file("text"), folder.file("a"));
  options.shard_tokens = 3000;
  options.format = ShardFormat::kMegatron;
  const EncodedSplit pairs = encode_corpus(options).splits[0];
  ASSERT_GT(pairs.shards.size(), 1U);
  EXPECT_EQ(names_in(folder.path()).size(), 2 * pairs.shards.size());
  options.shard_tokens = 1'000'000;
  options.format = ShardFormat::kLlmc;
  EXPECT_EQ(encode_corpus(options).replaced, static_cast<std::int64_t>(pairs.shards.size()) - 1);
  EXPECT_EQ(names_in(folder.path()), std::set<std::string>{"a_00000.bin"});
}

TEST(Encode, EveryFormatKeepsTheDocuments) {
  const TempFolder folder;
  EncodeOptions options = options_for(test_corpus().file("text"), folder.file("a"));
  options.format = ShardFormat::kMegatron;
  EXPECT_EQ(documents_of(encode_corpus(options).splits[0].shards), all_texts());
}

TEST(Encode, AFailureLeavesNothingNewAndTheOldShardsWhole) {
  const TempFolder folder;
  encode_corpus(options_for(test_corpus().file("text"), folder.file("a")));
  const std::string before = read_bytes(folder.file("a_00000.bin"));
  EncodeOptions options =
      options_for(folder.write("in/a.jsonl", "{\"text\": \"a\"}\n{"), folder.file("a"));
  options.corpus.paths.insert(options.corpus.paths.begin(), test_corpus().file("text"));
  options.shard_tokens = 500;
  expect_error(ExitCode::kData, {"a.jsonl:2"}, [&] { encode_corpus(options); });
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"a_00000.bin", "in"}));
  EXPECT_EQ(read_bytes(folder.file("a_00000.bin")), before);
}

TEST(Encode, NoTokensIsADataError) {
  const TempFolder folder;
  const EncodeOptions options =
      options_for(folder.write("a.jsonl", "{\"text\": \"\"}\n\n"), folder.file("a"));
  expect_error(ExitCode::kData, {"no token", "2 documents and lines were empty"},
               [&] { encode_corpus(options); });
}

TEST(Encode, OneDocumentCannotBeSplit) {
  const TempFolder folder;
  EncodeOptions options = options_for(test_corpus().file("text/10.txt"), folder.file("a"));
  options.val_fraction = 0.1;
  expect_error(ExitCode::kData, {"--val-fraction 0.1", "of 1 documents"},
               [&] { encode_corpus(options); });
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(Encode, OptionsOutOfRangeAreUsageErrors) {
  EncodeOptions options = options_for(test_corpus().file("text"), "");
  expect_error(ExitCode::kConfig, {"--out"}, [&] { encode_corpus(options); });
  options.out = "x";
  options.val_fraction = 1;
  expect_error(ExitCode::kConfig, {"--val-fraction is 1"}, [&] { encode_corpus(options); });
  options.val_fraction = 0;
  options.shard_tokens = 0;
  expect_error(ExitCode::kConfig, {"--shard-tokens is 0"}, [&] { encode_corpus(options); });
}

}  // namespace
}  // namespace nsa::test
