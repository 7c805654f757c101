#include "data/batch_builder.h"

#include <algorithm>
#include <limits>
#include <span>

#include "core/error.h"

namespace nsa {
namespace {

constexpr std::int64_t kIdBytes = sizeof(std::int32_t);

}  // namespace

BatchBuilder::BatchBuilder(const TokenDataset& data, Device& device, std::int64_t max_rows,
                           bool doc_mask, std::int64_t vocab_size)
    : data_(&data),
      device_(&device),
      max_rows_(max_rows),
      doc_mask_(doc_mask),
      vocab_size_(vocab_size),
      device_tokens_(device, max_rows * kIdBytes),
      device_targets_(device, max_rows * kIdBytes),
      device_bounds_(device, (max_rows + 1) * kIdBytes) {
  check(max_rows > 0 && max_rows < std::numeric_limits<std::int32_t>::max(),
        "BatchBuilder: max_rows out of range");
  if (doc_mask && !data.has_documents()) {
    fail_config("data.doc_mask is true, but " + data.describe() +
                " does not tell where documents start; set data.doc_sep.id to the token between "
                "them, encode the text again with nsa_tokenize, or set data.doc_mask: false");
  }
  tokens_.resize(static_cast<std::size_t>(max_rows));
  targets_.resize(static_cast<std::size_t>(max_rows));
  bounds_.reserve(static_cast<std::size_t>(max_rows) + 1);
  starts_.reserve(static_cast<std::size_t>(max_rows) + 1);
}

void BatchBuilder::start() {
  rows_ = 0;
  ignored_ = 0;
  bounds_.assign(1, 0);
}

void BatchBuilder::check_ids(std::span<const std::int32_t> ids, std::int64_t position) const {
  const auto outside = std::find_if(
      ids.begin(), ids.end(), [this](std::int32_t id) { return id < 0 || id >= vocab_size_; });
  if (outside != ids.end()) data_->fail_id(position + (outside - ids.begin()), vocab_size_);
}

void BatchBuilder::add(std::int64_t position, std::int64_t length) {
  check(length > 0 && rows_ + length <= max_rows_, "BatchBuilder: more rows than max_rows");
  const std::span<std::int32_t> inputs(tokens_.data() + rows_, static_cast<std::size_t>(length));
  const std::span<std::int32_t> targets(targets_.data() + rows_, inputs.size());
  data_->read(position, inputs);
  std::copy(inputs.begin() + 1, inputs.end(), targets.begin());
  data_->read(position + length, targets.last(1));
  check_ids(inputs, position);
  check_ids(targets.last(1), position + length);
  if (doc_mask_) {
    starts_.clear();
    data_->document_starts(position, position + length + 1, starts_);
    for (const std::int32_t start : starts_) {
      // The token before a start closes its document: what follows is none of its business.
      targets[static_cast<std::size_t>(start) - 1] = kIgnoredTarget;
      ++ignored_;
      if (start < length) bounds_.push_back(static_cast<std::int32_t>(rows_) + start);
    }
  }
  rows_ += length;
  bounds_.push_back(static_cast<std::int32_t>(rows_));
}

Batch BatchBuilder::finish() {
  device_->copy_from_host(device_tokens_.data(), tokens_.data(), rows_ * kIdBytes);
  device_->copy_from_host(device_targets_.data(), targets_.data(), rows_ * kIdBytes);
  const auto bounds = static_cast<std::int64_t>(bounds_.size());
  device_->copy_from_host(device_bounds_.data(), bounds_.data(), bounds * kIdBytes);
  return {
      .tokens = device_tokens_.view(DType::kI32, {rows_}),
      .targets = device_targets_.view(DType::kI32, {rows_}),
      .documents = {.bounds = bounds_, .device_bounds = device_bounds_.view(DType::kI32, {bounds})},
      .targets_valid = rows_ - ignored_};
}

}  // namespace nsa
