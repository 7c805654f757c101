// The program itself, as a user runs it.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sys/wait.h>

#include "data/corpora.h"
#include "data/shards.h"
#include "data/token_dataset.h"
#include "data/tokenizer.h"
#include "support/files.h"

namespace nsa::test {
namespace {

struct Outcome {
  int code = -1;
  std::string out;     ///< what went to stdout
  std::string errors;  ///< what went to stderr
};

Outcome tokenize(const TempFolder& folder, const std::string& arguments) {
  const std::string command = std::string(NSA_BINARY_DIR) + "/nsa_tokenize " + arguments + " > " +
                              folder.file("stdout") + " 2> " + folder.file("stderr");
  const int status = std::system(command.c_str());
  return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          .out = read_bytes(folder.file("stdout")),
          .errors = read_bytes(folder.file("stderr"))};
}

/// One line that starts with "error: " and names `part`.
void expect_refused(const Outcome& run, int code, const std::string& part) {
  EXPECT_EQ(run.code, code) << run.errors;
  EXPECT_TRUE(run.errors.starts_with("error: ")) << run.errors;
  EXPECT_EQ(run.errors.find('\n'), run.errors.size() - 1) << run.errors;
  EXPECT_NE(run.errors.find(part), std::string::npos) << run.errors;
}

TEST(NsaTokenize, TrainsAndEncodesAFolderOfText) {
  const TempFolder folder;
  const std::string text = test_corpus().file("text");
  const Outcome train = tokenize(
      folder, "train --in " + text + " --vocab-size 350 --out " + folder.file("tok.model"));
  EXPECT_EQ(train.code, 0) << train.errors;
  EXPECT_EQ(train.errors, "");
  EXPECT_NE(train.out.find("350 pieces"), std::string::npos) << train.out;
  EXPECT_EQ(Tokenizer(folder.file("tok.model")).vocab_size(), 350);

  const Outcome encode = tokenize(folder, "encode --model " + folder.file("tok.model") + " --in " +
                                              text + " --out " + folder.file("data/") +
                                              " --val-fraction 0.1 --shard-tokens 2K --format nsa");
  EXPECT_EQ(encode.code, 0) << encode.errors;
  EXPECT_EQ(encode.errors, "");
  EXPECT_NE(encode.out.find("40 documents"), std::string::npos) << encode.out;
  EXPECT_NE(encode.out.find("bytes a token"), std::string::npos) << encode.out;
  const TokenDataset data({folder.file("data/train_*.bin")});
  EXPECT_GT(data.shards(), 1);
  EXPECT_EQ(data.check_tokens(350).documents, 36);
  EXPECT_EQ(TokenDataset({folder.file("data/val_*.bin")}).check_tokens(350).documents, 4);
}

TEST(NsaTokenize, EncodesJsonlWithSuffixKeyAndSkip) {
  const TempFolder folder;
  folder.write("in/a.jsonl", "{\"body\": \"one\"}\nbad\n{\"body\": \"two\"}\n");
  folder.write("in/b.pod", "three");
  const std::string common = "encode --model " + test_corpus().file("tok.model") + " --in " +
                             folder.file("in") + " --out " + folder.file("x") +
                             " --text-key body --suffix .pod";
  expect_refused(tokenize(folder, common), 3, "a.jsonl:2");
  const Outcome run = tokenize(folder, common + " --on-bad-line skip");
  EXPECT_EQ(run.code, 0) << run.errors;
  EXPECT_NE(run.out.find("1 bad lines"), std::string::npos) << run.out;
  EXPECT_EQ(TokenDataset({folder.file("x_00000.bin")}).check_tokens(kTestVocabulary).documents, 3);
}

TEST(NsaTokenize, RefusesWrongUsageWithCodeTwo) {
  const TempFolder folder;
  const std::string encode = "encode --model m --in x --out y ";
  expect_refused(tokenize(folder, ""), 2, "subcommand");
  expect_refused(tokenize(folder, "train --in x"), 2, "--");
  expect_refused(tokenize(folder, encode + "--nope"), 2, "--nope");
  expect_refused(tokenize(folder, encode + "--on-bad-line maybe"), 2, "--on-bad-line");
  expect_refused(tokenize(folder, encode + "--shard-tokens 5X"), 2, "--shard-tokens");
  expect_refused(tokenize(folder, encode + "--val-fraction 2"), 2, "--val-fraction");
  expect_refused(tokenize(folder, encode + "--format arrow"), 2, "--format");
}

TEST(NsaTokenize, AllFormatsHoldTheSameTokens) {
  const TempFolder folder;
  for (const char* format : {"nsa", "llmc", "megatron"}) {
    const Outcome run =
        tokenize(folder, "encode --model " + test_corpus().file("tok.model") + " --in " +
                             test_corpus().file("text") + " --out " + folder.file(format) +
                             " --shard-tokens 2K --format " + format);
    EXPECT_EQ(run.code, 0) << run.errors;
  }
  const TokenDataset nsa({folder.file("nsa_*.bin")});
  const auto end = static_cast<std::int32_t>(Tokenizer(test_corpus().file("tok.model")).eos_id());
  const TokenDataset llmc({folder.file("llmc_*.bin")},
                          {.format = ShardFormat::kLlmc, .separator = Separator{.id = end}});
  const TokenDataset megatron({folder.file("megatron_*.bin")}, {.format = ShardFormat::kMegatron});
  const auto tokens_of = [](const TokenDataset& data) {
    Ids ids(static_cast<std::size_t>(data.tokens()));
    data.read(0, ids);
    return ids;
  };
  const auto starts_of = [](const TokenDataset& data) {
    Ids starts;
    data.document_starts(0, data.tokens(), starts);
    return starts;
  };
  EXPECT_GT(nsa.shards(), 1);
  EXPECT_EQ(tokens_of(megatron), tokens_of(nsa));
  EXPECT_EQ(starts_of(megatron), starts_of(nsa));
  // The mark moves from behind each document to its start: the stream turns by one token.
  Ids turned = tokens_of(nsa);
  std::rotate(turned.begin(), turned.end() - 1, turned.end());
  EXPECT_EQ(tokens_of(llmc), turned);
  EXPECT_EQ(starts_of(llmc), starts_of(nsa));
  for (const TokenDataset* data : {&nsa, &llmc, &megatron}) {
    EXPECT_EQ(data->check_tokens(kTestVocabulary).documents, 40);
  }
}

TEST(NsaTokenize, RefusesMoreTokensAShardThanLlmcCounts) {
  const TempFolder folder;
  const std::string encode = "encode --model m --in x --out y --format llmc --shard-tokens ";
  expect_refused(tokenize(folder, encode + "2147483648"), 2, "at most 2147483647");
  expect_refused(tokenize(folder, encode + "2147483647"), 3, "m");
}

TEST(NsaTokenize, RefusesDataWithCodeThree) {
  const TempFolder folder;
  const std::string model = test_corpus().file("tok.model");
  expect_refused(tokenize(folder, "encode --model " + folder.file("no.model") + " --in " + model +
                                      " --out " + folder.file("x")),
                 3, "no.model");
  expect_refused(tokenize(folder, "encode --model " + model + " --in " + folder.file("no*.txt") +
                                      " --out " + folder.file("x")),
                 3, "no*.txt");
  EXPECT_FALSE(std::filesystem::exists(folder.file("x_00000.bin")));
}

TEST(NsaTokenize, AFolderThatCannotBeWrittenIsCodeOne) {
  const TempFolder folder;
  folder.write("file", "not a folder");
  expect_refused(
      tokenize(folder, "encode --model " + test_corpus().file("tok.model") + " --in " +
                           test_corpus().file("text") + " --out " + folder.file("file/x")),
      1, folder.file("file"));
}

TEST(NsaTokenize, HelpIsNoError) {
  const TempFolder folder;
  const Outcome run = tokenize(folder, "encode --help");
  EXPECT_EQ(run.code, 0);
  EXPECT_NE(run.out.find("--val-fraction"), std::string::npos);
}

}  // namespace
}  // namespace nsa::test
