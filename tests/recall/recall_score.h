#pragma once

// Scores a checkpoint on held-out queries of the recall task, through the model's own forward pass.

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "recall/recall_task.h"

namespace nsa::recall {

/// In how many of the queries a layer selects the answer's block.
struct Found {
  std::int64_t layer = 0;
  double share = 0;
};

struct Score {
  std::int64_t queries = 0;
  std::int64_t right = 0;      ///< queries whose likeliest next token is the answer
  std::int64_t nearest = 0;    ///< smallest distance from a query back to its answer
  std::int64_t step = 0;       ///< finished updates of the checkpoint
  std::vector<Found> found{};  ///< of the layers that select blocks

  double accuracy() const { return static_cast<double>(right) / static_cast<double>(queries); }
};

/// The newest checkpoint of a run (or the one at `checkpoint`) on the first `documents` documents
/// of data.val. Every query sees the whole document up to its key, and the answer is the likeliest
/// of all tokens. Throws Error: code 2 without data.val, 3 for documents that are not of the task,
/// 4 without a checkpoint.
Score score(const Config& config, const Task& task, const std::string& checkpoint,
            std::int64_t documents);

}  // namespace nsa::recall
