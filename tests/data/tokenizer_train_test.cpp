#include "data/tokenizer_train.h"

#include "data/corpora.h"
#include "data/tokenizer.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/text.h"

namespace nsa::test {
namespace {

TokenizerTrainOptions options_for(const std::string& path, const std::string& out,
                                  std::int64_t vocab_size = kTestVocabulary) {
  TokenizerTrainOptions options;
  options.corpus.paths = {path};
  options.vocab_size = vocab_size;
  options.out = out;
  return options;
}

TEST(TokenizerTrain, TheSameTextGivesTheSameFile) {
  const TempFolder folder;
  train_tokenizer(options_for(test_corpus().file("text"), folder.file("again.model")));
  EXPECT_EQ(read_bytes(folder.file("again.model")), read_bytes(test_corpus().file("tok.model")));
}

TEST(TokenizerTrain, ReportsWhatItRead) {
  const TempFolder folder;
  const TokenizerTrainReport report =
      train_tokenizer(options_for(test_corpus().file("text"), folder.file("m")));
  EXPECT_EQ(report.corpus.documents, 40);
  EXPECT_EQ(report.sampled_bytes, report.corpus.bytes);
}

TEST(TokenizerTrain, TextInOneLongLineIsUsed) {
  const TempFolder folder;
  std::string text = TextGenerator(3).document(4000);
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  const TokenizerTrainReport report =
      train_tokenizer(options_for(folder.write("a.txt", text), folder.file("m")));
  EXPECT_EQ(report.sampled_bytes, static_cast<std::int64_t>(text.size()));
  const Tokenizer tokenizer(folder.file("m"));
  EXPECT_LT(tokenizer.encode(text).size() * 2, text.size());
}

TEST(TokenizerTrain, LongRunsWithoutSpacesAreCutBetweenCharacters) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 3000; ++i) text += i % 2 == 0 ? "\xE4\xB8\xAD" : "\xE6\x96\x87";
  text += TextGenerator(3).document(4000);
  train_tokenizer(options_for(folder.write("a.txt", text), folder.file("m")));
  EXPECT_EQ(Tokenizer(folder.file("m")).decode(Tokenizer(folder.file("m")).encode(text)), text);
}

TEST(TokenizerTrain, AVocabularyThatDoesNotFitIsAUsageError) {
  const TempFolder folder;
  const std::string text = test_corpus().file("text");
  expect_error(ExitCode::kConfig, {"--vocab-size 50000", "at most"},
               [&] { train_tokenizer(options_for(text, folder.file("m"), 50000)); });
  expect_error(ExitCode::kConfig, {"--vocab-size 280", "at least"},
               [&] { train_tokenizer(options_for(text, folder.file("m"), 280)); });
  expect_error(ExitCode::kConfig, {"--vocab-size is 10", "at least"},
               [&] { train_tokenizer(options_for(text, folder.file("m"), 10)); });
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(TokenizerTrain, NoTextIsADataError) {
  const TempFolder folder;
  const std::string path = folder.write("a.txt", "");
  expect_error(ExitCode::kData, {"no text"},
               [&] { train_tokenizer(options_for(path, folder.file("m"))); });
}

}  // namespace
}  // namespace nsa::test
