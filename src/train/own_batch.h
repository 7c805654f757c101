#pragma once

// OwnBatch: a batch that the trainer makes itself: for the rehearsal before step 0 and for samples.

#include <cstdint>
#include <vector>

#include "core/batch.h"
#include "core/buffer.h"

namespace nsa {

/// All memory is taken at construction. `device` must outlive it.
class OwnBatch {
 public:
  OwnBatch(Device& device, std::int64_t max_rows);

  /// Inputs `tokens`, cut into documents of `document` tokens (the last one may be shorter);
  /// targets are one further inside a document. The views live until the next call.
  Batch make(const std::vector<std::int32_t>& tokens, std::int64_t document);

 private:
  Device* device_;
  std::int64_t max_rows_;
  std::vector<std::int32_t> targets_, bounds_;
  Buffer device_tokens_, device_targets_, device_bounds_;
};

}  // namespace nsa
