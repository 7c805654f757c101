#include "data/loader.h"

#include <algorithm>

#include "core/error.h"
#include "core/format.h"

namespace nsa {
namespace {

std::int64_t count_pages(const TokenDataset& data, std::int64_t page) {
  check(page > 0, "Loader: page must be positive");
  const std::int64_t pages = (data.tokens() - 1) / page;
  if (data.tokens() < 1 || pages < 1) {
    fail_data(
        fmt::format("{}: has {} tokens, and training needs at least {} (the largest seq_len of the "
                    "schedule + 1); add text, or lower train.seq_len and the seq_len of the stages",
                    data.describe(), data.tokens(), page + 1));
  }
  return pages;
}

std::int64_t count_targets(const TokenDataset& data, std::int64_t limit) {
  check_one_target(data);
  check(limit > 0, "SequentialLoader: limit must be positive");
  return std::min(limit, data.tokens() - 1);
}

}  // namespace

void check_one_target(const TokenDataset& data) {
  if (data.tokens() >= 2) return;
  fail_data(
      fmt::format("{}: has {} tokens, and evaluation needs at least 2 (one input and one target); "
                  "name more validation text in data.val, or none",
                  data.describe(), data.tokens()));
}

Loader::Loader(const TokenDataset& data, const LoaderOptions& options, Device& device)
    : data_(&data),
      options_(options),
      pages_(count_pages(data, options.page)),
      order_(pages_, options.seed, options.shuffle),
      builder_(data, device, options.max_rows, options.doc_mask, options.vocab_size) {}

std::int64_t Loader::tail_tokens() const {
  return data_->tokens() - epoch_tokens();
}

std::int64_t Loader::page_at(std::int64_t epoch, std::int64_t index) const {
  return order_.at(epoch, index);
}

void Loader::advance(std::int64_t tokens) {
  state_.cursor += tokens;
  if (state_.cursor == epoch_tokens()) {
    ++state_.epoch;
    state_.cursor = 0;
  }
}

Batch Loader::next(std::int64_t sequences, std::int64_t seq_len) {
  check(sequences > 0 && seq_len > 0, "Loader: an empty batch was asked for");
  check(options_.page % seq_len == 0, "Loader: seq_len must divide the page");
  check(state_.cursor % seq_len == 0, "Loader: a page was begun with another seq_len");
  builder_.start();
  for (std::int64_t s = 0; s < sequences; ++s) {
    const std::int64_t page = page_at(state_.epoch, state_.cursor / options_.page);
    builder_.add(page * options_.page + state_.cursor % options_.page, seq_len);
    advance(seq_len);
  }
  return builder_.finish();
}

void Loader::finish_page() {
  const std::int64_t begun = state_.cursor % options_.page;
  if (begun == 0) return;
  state_.dropped += options_.page - begun;
  advance(options_.page - begun);
}

void Loader::seek(const LoaderState& state) {
  if (state.epoch < 0 || state.dropped < 0 || state.cursor < 0 || state.cursor >= epoch_tokens()) {
    fail_checkpoint(
        fmt::format("the checkpoint stands at token {} of epoch {}, and an epoch of {} has {} "
                    "tokens; the data changed, so name the old data or start a new run",
                    state.cursor, state.epoch, data_->describe(), epoch_tokens()));
  }
  state_ = state;
}

SequentialLoader::SequentialLoader(const TokenDataset& data, const LoaderOptions& options,
                                   Device& device, std::int64_t limit)
    : targets_total_(count_targets(data, limit)),
      seq_len_(options.page),
      builder_(data, device, options.max_rows, options.doc_mask, options.vocab_size) {
  check(seq_len_ > 0, "SequentialLoader: page must be positive");
}

void SequentialLoader::restart(std::int64_t seq_len) {
  check(seq_len > 0, "SequentialLoader: seq_len must be positive");
  seq_len_ = seq_len;
  at_ = 0;
}

Batch SequentialLoader::next(std::int64_t sequences) {
  builder_.start();
  for (std::int64_t s = 0; s < sequences && at_ < targets_total_; ++s) {
    const std::int64_t length = std::min(seq_len_, targets_total_ - at_);
    builder_.add(at_, length);
    at_ += length;
  }
  return builder_.finish();
}

}  // namespace nsa
