#pragma once

// BatchBuilder: gathers sequences of a data set into one Batch on the device.

#include <cstdint>
#include <span>
#include <vector>

#include "core/batch.h"
#include "core/buffer.h"
#include "data/token_dataset.h"

namespace nsa {

/// A vocabulary that every id is in.
inline constexpr std::int64_t kAnyId = std::int64_t{1} << 31U;

/// All memory is taken at construction. `data` and `device` must outlive it.
class BatchBuilder {
 public:
  /// Throws Error (code 2) for doc_mask over shards that do not tell where documents start.
  BatchBuilder(const TokenDataset& data, Device& device, std::int64_t max_rows, bool doc_mask,
               std::int64_t vocab_size = kAnyId);

  void start();
  /// Appends inputs [position, position + length) with targets one further: one document, or with
  /// doc_mask the documents and parts of documents in it. position + length < data.tokens().
  /// Throws Error (code 3) for an id that is not in [0, vocab_size): a model would read and write
  /// memory that is not its own.
  void add(std::int64_t position, std::int64_t length);
  /// The batch, on the device; its views live until the next start().
  Batch finish();

 private:
  void check_ids(std::span<const std::int32_t> ids, std::int64_t position) const;

  const TokenDataset* data_;
  Device* device_;
  std::int64_t max_rows_;
  bool doc_mask_;
  std::int64_t vocab_size_;
  std::int64_t rows_ = 0;
  std::int64_t ignored_ = 0;
  std::vector<std::int32_t> tokens_, targets_;  ///< [max_rows]
  std::vector<std::int32_t> bounds_, starts_;   ///< room for one document a row
  Buffer device_tokens_, device_targets_, device_bounds_;
};

}  // namespace nsa
