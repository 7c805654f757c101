#include "data/tokenizer_train.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <sentencepiece_trainer.h>

#include "core/error.h"
#include "core/format.h"
#include "core/parallel.h"
#include "core/philox.h"
#include "data/atomic_file.h"
#include "data/utf8.h"

namespace nsa {
namespace {

// More text changes the pieces little, and sentencepiece holds several copies of it in memory.
constexpr std::int64_t kSampleBytes = std::int64_t{128} << 20;
// sentencepiece leaves out longer lines than its max_sentence_length, by default 4192 bytes.
constexpr std::size_t kLineBytes = 4096;
// 256 bytes, <unk>, </s>, the tab, and room for a few characters.
constexpr std::int64_t kLeastVocabulary = 272;
// As many as model.vocab_size may be; sentencepiece takes memory for every piece it is asked for.
constexpr std::int64_t kMostVocabulary = 16777216;

/// Lines of the corpus, thinned out evenly when there are more than kSampleBytes of them.
class LineSample {
 public:
  void add_document(std::string_view text) {
    while (!text.empty()) {
      const std::size_t length = line_length(text);
      add_line(text.substr(0, length));
      text.remove_prefix(length);
    }
  }

  std::vector<std::string> take() {
    std::vector<std::string> lines;
    lines.reserve(lines_.size());
    for (Line& line : lines_) lines.push_back(std::move(line.text));
    return lines;
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  struct Line {
    std::uint32_t rank;
    std::string text;
  };

  /// A line with the newlines that follow it: pieces may hold trailing newlines, never a start.
  static std::size_t line_length(std::string_view text) {
    std::size_t end = text.find('\n');
    if (end != std::string_view::npos) end = text.find_first_not_of('\n', end);
    if (end == std::string_view::npos) end = text.size();
    if (end <= kLineBytes) return end;
    const std::size_t space = text.rfind(' ', kLineBytes);
    if (space != std::string_view::npos && space > 0) return space;
    std::size_t cut = kLineBytes;
    while (cut > kLineBytes - 4 && utf8_length(text.substr(cut)) == 0) --cut;
    return cut;
  }

  void add_line(std::string_view text) {
    // sentencepiece keeps these characters for itself: U+0000, U+2581 and U+2585.
    if (text.find('\0') != std::string_view::npos ||
        text.find("\xE2\x96\x81") != std::string_view::npos ||
        text.find("\xE2\x96\x85") != std::string_view::npos) {
      return;
    }
    const std::uint32_t rank = philox(0, 0, static_cast<std::uint64_t>(seen_++))[0];
    if (rank > threshold_) return;
    lines_.push_back({rank, std::string(text)});
    bytes_ += static_cast<std::int64_t>(text.size());
    if (bytes_ > kSampleBytes) thin();
  }

  /// Keeps the half with the lower ranks: after any number of lines the sample is an even one.
  void thin() {
    threshold_ /= 2;
    std::erase_if(lines_, [this](const Line& line) { return line.rank > threshold_; });
    bytes_ = 0;
    for (const Line& line : lines_) bytes_ += static_cast<std::int64_t>(line.text.size());
  }

  std::vector<Line> lines_;
  std::int64_t seen_ = 0;
  std::int64_t bytes_ = 0;
  std::uint32_t threshold_ = std::numeric_limits<std::uint32_t>::max();
};

class LineIterator final : public sentencepiece::SentenceIterator {
 public:
  explicit LineIterator(std::vector<std::string> lines) : lines_(std::move(lines)) {}
  bool done() const override { return at_ == lines_.size(); }
  void Next() override { ++at_; }  // NOLINT(readability-identifier-naming): sentencepiece's name
  const std::string& value() const override { return lines_[at_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::vector<std::string> lines_;
  std::size_t at_ = 0;
};

/// Names and meanings: sentencepiece's doc/options.md.
std::unordered_map<std::string, std::string> settings(std::int64_t vocab_size) {
  return {{"model_type", "bpe"},
          {"vocab_size", std::to_string(vocab_size)},
          {"unk_id", "0"},
          {"eos_id", "1"},
          {"bos_id", "-1"},
          {"pad_id", "-1"},
          {"byte_fallback", "true"},
          {"normalization_rule_name", "identity"},
          {"remove_extra_whitespaces", "false"},
          {"add_dummy_prefix", "false"},
          {"allow_whitespace_only_pieces", "true"},
          {"split_digits", "true"},
          // The tab is sentencepiece's own mark in training, so no piece would ever hold one.
          {"user_defined_symbols", "\t"},
          {"max_sentence_length", std::to_string(kLineBytes + 4)},
          {"num_threads", std::to_string(WorkerPool::default_threads())},
          {"minloglevel", "4"}};
}

void check_options(const TokenizerTrainOptions& options) {
  if (options.out.empty()) fail_config("--out is empty; name the model file to write");
  if (options.vocab_size < kLeastVocabulary || options.vocab_size > kMostVocabulary) {
    fail_config(
        fmt::format("--vocab-size is {}; it must be at least {}, for 256 bytes, two marks and some "
                    "characters, and at most {}",
                    options.vocab_size, kLeastVocabulary, kMostVocabulary));
  }
}

/// The number behind `mark` in a message, or nothing.
std::string number_behind(const std::string& message, const std::string& mark) {
  const std::size_t at = message.find(mark);
  if (at == std::string::npos) return "";
  const std::size_t begin = at + mark.size();
  return message.substr(begin, message.find_first_not_of("0123456789", begin) - begin);
}

/// sentencepiece tells what does not fit only after it has counted, in words of its own options.
[[noreturn]] void fail_training(const TokenizerTrainOptions& options,
                                const TokenizerTrainReport& report, const std::string& message) {
  const std::string most = number_behind(message, "a value <= ");
  const std::string least = number_behind(message, " vs ");
  std::string advice = "sentencepiece cannot learn from it; try another size or more text";
  if (!most.empty()) advice = "its words give at most " + most + "; lower it or add text";
  if (!least.empty()) advice = "its characters need at least " + least;
  fail_config(fmt::format("--vocab-size {} does not fit the {} bytes of text: {}",
                          options.vocab_size, report.sampled_bytes, advice));
}

}  // namespace

TokenizerTrainReport train_tokenizer(const TokenizerTrainOptions& options) {
  check_options(options);
  TokenizerTrainReport report;
  LineSample sample;
  report.corpus =
      read_corpus(options.corpus, [&sample](std::string_view text) { sample.add_document(text); });
  if (sample.bytes() == 0) {
    fail_data(
        fmt::format("the {} files hold no text to train a tokenizer on; name others with "
                    "--in",
                    report.corpus.files));
  }
  report.sampled_bytes = sample.bytes();
  LineIterator lines(sample.take());
  std::string model;
  const auto status =
      sentencepiece::SentencePieceTrainer::Train(settings(options.vocab_size), &lines, &model);
  if (!status.ok()) fail_training(options, report, status.ToString());
  AtomicFile file(options.out);
  file.write(model.data(), static_cast<std::int64_t>(model.size()));
  file.commit();
  return report;
}

}  // namespace nsa
