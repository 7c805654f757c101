#include "train/own_batch.h"

#include <algorithm>

#include "core/error.h"

namespace nsa {
namespace {

std::int64_t id_bytes(std::int64_t count) {
  return count * size_of(DType::kI32);
}

}  // namespace

OwnBatch::OwnBatch(Device& device, std::int64_t max_rows)
    : device_(&device),
      max_rows_(max_rows),
      device_tokens_(device, id_bytes(max_rows)),
      device_targets_(device, id_bytes(max_rows)),
      device_bounds_(device, id_bytes(max_rows + 1)) {
  targets_.reserve(static_cast<std::size_t>(max_rows));
  bounds_.reserve(static_cast<std::size_t>(max_rows + 1));
}

Batch OwnBatch::make(const std::vector<std::int32_t>& tokens, std::int64_t document) {
  const auto rows = static_cast<std::int64_t>(tokens.size());
  check(rows <= max_rows_ && document > 0, "OwnBatch: too many rows, or empty documents");
  targets_.assign(tokens.size(), kIgnoredTarget);
  bounds_.assign(1, 0);
  std::int64_t valid = 0;
  for (std::int64_t begin = 0; begin < rows; begin += document) {
    const std::int64_t end = std::min(rows, begin + document);
    for (std::int64_t row = begin; row + 1 < end; ++row, ++valid) {
      targets_[static_cast<std::size_t>(row)] = tokens[static_cast<std::size_t>(row) + 1];
    }
    bounds_.push_back(static_cast<std::int32_t>(end));
  }
  const auto bounds = static_cast<std::int64_t>(bounds_.size());
  device_->copy_from_host(device_tokens_.data(), tokens.data(), id_bytes(rows));
  device_->copy_from_host(device_targets_.data(), targets_.data(), id_bytes(rows));
  device_->copy_from_host(device_bounds_.data(), bounds_.data(), id_bytes(bounds));
  return {
      .tokens = device_tokens_.view(DType::kI32, {rows}),
      .targets = device_targets_.view(DType::kI32, {rows}),
      .documents = {.bounds = bounds_, .device_bounds = device_bounds_.view(DType::kI32, {bounds})},
      .targets_valid = valid};
}

}  // namespace nsa
