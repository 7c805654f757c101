#include "data/encode.h"

#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "core/error.h"
#include "core/format.h"
#include "core/log.h"
#include "core/parallel.h"
#include "core/philox.h"
#include "data/llmc_shard.h"
#include "data/megatron_shard.h"
#include "data/shard_writer.h"
#include "data/token_shard.h"
#include "data/tokenizer.h"

namespace nsa {
namespace {

namespace fs = std::filesystem;

// Documents are encoded in parallel a batch at a time; this bounds the memory of a batch.
constexpr std::size_t kBatchBytes = std::size_t{8} << 20U;
constexpr std::size_t kBatchDocuments = 4096;
// A sign of life about every minute.
constexpr std::size_t kReportBytes = std::size_t{256} << 20U;

void check_options(const EncodeOptions& options) {
  if (options.out.empty()) fail_config("--out is empty; name a prefix or a folder for the shards");
  if (!(options.val_fraction >= 0 && options.val_fraction < 1)) {
    fail_config(fmt::format("--val-fraction is {}; it must be at least 0 and below 1",
                            options.val_fraction));
  }
  if (options.shard_tokens < 1) {
    fail_config(fmt::format("--shard-tokens is {}; it must be at least 1", options.shard_tokens));
  }
  if (options.format == ShardFormat::kLlmc && options.shard_tokens > kLlmcMostTokens) {
    fail_config(
        fmt::format("--shard-tokens is {}; a shard of --format llmc counts at most {} tokens",
                    options.shard_tokens, kLlmcMostTokens));
  }
}

/// The name of shard `number` of a split.
std::string shard_path(const std::string& out, const std::string& split, std::int64_t number) {
  std::string stem = out;
  std::error_code error;
  if (!out.ends_with('/')) stem += fs::is_directory(out, error) ? "/" : "_";
  if (!split.empty()) stem += split + "_";
  return fmt::format("{}{:05}.bin", stem, number);
}

/// Whether a shard stands there, of whatever format: no other file is ours to remove.
bool is_shard(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;
  const std::optional<ShardFormat> format = find_format(path);
  return format &&
         (*format != ShardFormat::kMegatron || is_megatron_index(megatron_index_path(path)));
}

void remove_file(const std::string& path) {
  std::error_code error;
  fs::remove(path, error);
  if (error) {
    fail_runtime(path + ": is of an earlier run and cannot be removed: " + error.message() +
                 "; remove it, or --out another folder");
  }
}

/// Removes the index that an earlier run left beside `path`, which gets other tokens now.
void remove_index(const std::string& path) {
  const std::string index = megatron_index_path(path);
  if (is_megatron_index(index)) remove_file(index);
}

/// Writes the shards of one split, complete but not yet under their names.
class SplitWriter {
 public:
  SplitWriter(const EncodeOptions& options, const std::string& split, const ShardLabel& label)
      : options_(options), label_(label) {
    result_.name = split;
  }

  void add(std::span<const std::int32_t> ids) {
    const auto count = static_cast<std::int64_t>(ids.size());
    if (shard_ && shard_->tokens() + count > options_.shard_tokens) close_shard();
    if (!shard_) {
      const auto number = shards_;
      shard_ = make_shard_writer(options_.format, shard_path(options_.out, result_.name, number),
                                 label_);
    }
    shard_->add_document(ids);
    ++result_.documents;
    result_.tokens += count;
  }

  void close_shard() {
    if (!shard_) return;
    for (AtomicFile& file : shard_->finish()) finished_.push_back(std::move(file));
    ++shards_;
    shard_.reset();
  }

  /// Gives all shards their names, and removes those of an earlier run that had more of them: a
  /// glob over the shards must not mix two runs. Returns how many were removed.
  std::int64_t commit() {
    for (AtomicFile& file : finished_) {
      const bool is_tokens = file.path().ends_with(".bin");
      if (is_tokens) remove_index(file.path());
      file.commit();
      if (is_tokens) result_.shards.push_back(file.path());
    }
    std::int64_t removed = 0;
    for (std::int64_t number = shards_;; ++number) {
      const std::string stale = shard_path(options_.out, result_.name, number);
      if (!is_shard(stale)) return removed;
      remove_file(stale);
      remove_index(stale);
      ++removed;
    }
  }

  const EncodedSplit& result() const { return result_; }

 private:
  const EncodeOptions& options_;
  ShardLabel label_;
  EncodedSplit result_;
  std::unique_ptr<ShardWriter> shard_;
  std::int64_t shards_ = 0;  ///< closed
  std::vector<AtomicFile> finished_;
};

/// Gathers documents, encodes a batch of them on all cores and hands them on in order.
class Encoder {
 public:
  /// `mark_before`: the end mark of the document before stands at the start of each.
  Encoder(const Tokenizer& tokenizer, bool mark_before,
          std::function<void(std::span<const std::int32_t>)> sink)
      : tokenizer_(tokenizer),
        mark_before_(mark_before),
        sink_(std::move(sink)),
        pool_(WorkerPool::default_threads()) {}

  void add(std::string_view text) {
    texts_.emplace_back(text);
    bytes_ += text.size();
    if (bytes_ >= kBatchBytes || texts_.size() >= kBatchDocuments) flush();
  }

  void flush() {
    encoded_.resize(texts_.size());
    pool_.for_each(static_cast<std::int64_t>(texts_.size()), [this](std::int64_t i, int) {
      const auto at = static_cast<std::size_t>(i);
      encoded_[at] = tokenizer_.encode(texts_[at]);
    });
    for (std::vector<std::int32_t>& ids : encoded_) {
      if (ids.empty()) {
        ++without_tokens_;
        continue;
      }
      ids.insert(mark_before_ ? ids.begin() : ids.end(),
                 static_cast<std::int32_t>(tokenizer_.eos_id()));
      sink_(ids);
    }
    texts_.clear();
    done_bytes_ += bytes_;
    bytes_ = 0;
    if (done_bytes_ < next_report_) return;
    log::info(fmt::format("  {} MiB of text encoded", done_bytes_ >> 20U));
    next_report_ = done_bytes_ + kReportBytes;
  }

  std::int64_t without_tokens() const { return without_tokens_; }

 private:
  const Tokenizer& tokenizer_;
  bool mark_before_;
  std::function<void(std::span<const std::int32_t>)> sink_;
  WorkerPool pool_;
  std::vector<std::string> texts_;
  std::vector<std::vector<std::int32_t>> encoded_;
  std::size_t bytes_ = 0;
  std::size_t done_bytes_ = 0;
  std::size_t next_report_ = kReportBytes;
  std::int64_t without_tokens_ = 0;
};

void check_result(const EncodeOptions& options, const EncodeReport& report,
                  std::int64_t documents) {
  if (documents == 0) {
    fail_data(fmt::format(
        "{} files gave no token: {} documents and lines were empty, {} lines "
        "were bad and {} documents gave no token; nothing was written",
        report.corpus.files, report.corpus.empty, report.corpus.bad_lines, report.without_tokens));
  }
  if (options.val_fraction == 0) return;
  for (const EncodedSplit& split : report.splits) {
    if (split.documents > 0) continue;
    fail_data(
        fmt::format("--val-fraction {} of {} documents leaves none for {}; whole documents are "
                    "held out, so give more documents, another fraction, or encode a separate "
                    "validation text",
                    options.val_fraction, documents, split.name));
  }
}

}  // namespace

std::int64_t EncodeReport::tokens() const {
  std::int64_t sum = 0;
  for (const EncodedSplit& split : splits) sum += split.tokens;
  return sum;
}

bool is_validation(std::int64_t index, double fraction) {
  if (fraction <= 0) return false;
  // Group g holds the documents [ceil(g / fraction), ceil((g + 1) / fraction)).
  const auto first_of = [fraction](std::int64_t group) {
    return static_cast<std::int64_t>(std::ceil(static_cast<double>(group) / fraction));
  };
  auto group = static_cast<std::int64_t>(static_cast<double>(index) * fraction);
  while (first_of(group) > index) --group;
  while (first_of(group + 1) <= index) ++group;
  const auto size = static_cast<std::uint64_t>(first_of(group + 1) - first_of(group));
  const std::uint32_t random = philox(0, 0, static_cast<std::uint64_t>(group))[0];
  return index == first_of(group) + static_cast<std::int64_t>(random % size);
}

EncodeReport encode_corpus(const EncodeOptions& options) {
  check_options(options);
  const Tokenizer tokenizer(options.model);
  if (tokenizer.eos_id() < 0) {
    fail_data(options.model +
              ": has no end-of-text piece (eos), so the end of a document cannot be marked; use a "
              "model that has one, as those of nsa_tokenize train do");
  }
  const ShardLabel label{.vocab_size = tokenizer.vocab_size(),
                         .tokenizer = tokenizer.fingerprint(),
                         .eos_id = tokenizer.eos_id()};
  const bool split = options.val_fraction > 0;
  SplitWriter train(options, split ? "train" : "", label);
  SplitWriter val(options, "val", label);
  std::int64_t documents = 0;
  const bool mark_before = options.format == ShardFormat::kLlmc;
  Encoder encoder(tokenizer, mark_before, [&](std::span<const std::int32_t> ids) {
    (is_validation(documents++, options.val_fraction) ? val : train).add(ids);
  });
  EncodeReport report;
  report.corpus = read_corpus(options.corpus, [&](std::string_view text) { encoder.add(text); });
  encoder.flush();
  report.without_tokens = encoder.without_tokens();
  train.close_shard();
  val.close_shard();
  report.splits.push_back(train.result());
  if (split) report.splits.push_back(val.result());
  check_result(options, report, documents);
  report.replaced = train.commit();
  report.splits[0] = train.result();
  if (split) {
    report.replaced += val.commit();
    report.splits[1] = val.result();
  }
  return report;
}

}  // namespace nsa
