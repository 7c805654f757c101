// Compressed attention with the choice of blocks: attention, then scores and top-n for a chunk of
// queries at a time, so that scores of all queries never stand in memory together.

#include <algorithm>
#include <type_traits>

#include "kernels/attention/range_attention.h"
#include "kernels/common/check.h"
#include "kernels/cuda_ops.h"
#include "kernels/nsa/block_scores.h"
#include "kernels/nsa/top_blocks.h"

namespace nsa::cuda {
namespace {

/// Scores of a chunk: about what the L2 cache holds until they are ranked, and enough queries that
/// every multiprocessor has several thread blocks.
constexpr std::int64_t kChunkBytes = std::int64_t{64} << 20;
/// Chunks are multiples of this, so that every thread block but the last is full.
constexpr std::int64_t kChunkQueries = 256;

template <class T>
void score(const ScoreProblem<T>& problem, cudaStream_t stream) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (scores_fit_tensor_cores(problem.head_dim, problem.group)) {
      return score_blocks_tensor(problem, stream);
    }
  }
  score_blocks_plain(problem, stream);
}

template <class T>
ScoreProblem<T> score_problem(const CompressedSelectForward& op, const DocumentView& documents,
                              bool general) {
  ScoreProblem<T> problem;
  problem.q = elements<T>(op.q);
  problem.k = elements<T>(op.k);
  problem.lse = op.lse.as<float>();
  problem.kv_heads = static_cast<std::int32_t>(op.k.dim(1));
  problem.group = static_cast<std::int32_t>(op.q.dim(1) / op.k.dim(1));
  problem.head_dim = static_cast<std::int32_t>(op.q.dim(2));
  problem.scale = static_cast<float>(op.scale);
  problem.general = general;
  problem.geometry = op.geometry;
  problem.documents = documents;
  return problem;
}

}  // namespace

void CudaOps::apply(const CompressedSelectForward& op) {
  const DocumentView documents = documents_.view(op.documents, op.geometry);
  range_attention_forward({.out = op.out,
                           .lse = op.lse,
                           .q = op.q,
                           .k = op.k,
                           .v = op.v,
                           .scale = op.scale,
                           .range = KeyRange::kCompressed,
                           .documents = documents,
                           .geometry = op.geometry,
                           .general = general_},
                          stream_);
  const bool ranked = op.blocks.defined() && !op.reuse_blocks;
  if (!ranked && !op.importance.defined()) return;

  Scratch::Frame frame(scratch_);
  const std::int64_t tokens = documents.tokens;
  const std::int64_t kv_heads = op.k.dim(1);
  const auto most = op.geometry.selection_blocks(static_cast<std::int32_t>(op.documents.longest()));
  std::int64_t chunk = tokens;
  float* importance = nullptr;
  if (op.importance.defined()) {
    importance = op.importance.as<float>();
    check(cudaMemsetAsync(importance, 0, static_cast<std::size_t>(op.importance.bytes()), stream_));
  } else {
    const std::int64_t fit = kChunkBytes / (std::max<std::int64_t>(1, most) * kv_heads * 4);
    chunk = std::min(tokens, std::max<std::int64_t>(1, fit / kChunkQueries) * kChunkQueries);
    importance = frame.take<float>(chunk * kv_heads * most);
  }
  with_device_type(op.q.dtype(), [&]<class T>() {
    ScoreProblem<T> problem = score_problem<T>(op, documents, general_);
    problem.importance = importance;
    problem.stride = most;
    for (std::int64_t first = 0; first < tokens; first += chunk) {
      problem.first = static_cast<std::int32_t>(first);
      problem.count = static_cast<std::int32_t>(std::min(chunk, tokens - first));
      score(problem, stream_);
      if (!ranked) continue;
      rank_blocks({.blocks = op.blocks.as<std::int32_t>(),
                   .importance = importance,
                   .stride = most,
                   .first = problem.first,
                   .count = problem.count,
                   .kv_heads = problem.kv_heads,
                   .most_blocks = most,
                   .geometry = op.geometry,
                   .documents = documents},
                  stream_);
    }
  });
}

}  // namespace nsa::cuda
