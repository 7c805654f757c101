#pragma once

// A generated corpus and a tokenizer trained on it, made once for all tests of a process.

#include <string>

#include "data/tokenizer_train.h"
#include "support/files.h"
#include "support/text.h"

namespace nsa::test {

constexpr std::int64_t kTestVocabulary = 400;

/// A folder with the text files text/10.txt .. text/49.txt and the tokenizer tok.model, 400 pieces.
inline const TempFolder& test_corpus() {
  static const TempFolder folder;
  static const bool made = [] {
    TextGenerator generator(11);
    for (int i = 0; i < 40; ++i) {
      folder.write("text/" + std::to_string(10 + i) + ".txt", generator.document(150));
    }
    TokenizerTrainOptions options;
    options.corpus.paths = {folder.file("text")};
    options.vocab_size = kTestVocabulary;
    options.out = folder.file("tok.model");
    train_tokenizer(options);
    return true;
  }();
  static_cast<void>(made);
  return folder;
}

}  // namespace nsa::test
