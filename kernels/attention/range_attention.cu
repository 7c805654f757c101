#include <algorithm>
#include <limits>
#include <string>

#include "core/error.h"
#include "kernels/attention/range_attention.h"
#include "kernels/attention/range_problem.cuh"

namespace nsa::cuda {
namespace {

constexpr std::int64_t kMostDim = 256;

/// What forward and backward share.
template <class T, class Op>
RangeProblem<T> range_problem(const Op& op) {
  RangeProblem<T> problem;
  problem.q = elements<T>(op.q);
  problem.k = elements<T>(op.k);
  problem.v = elements<T>(op.v);
  problem.lse = elements<float>(op.lse);
  problem.heads = static_cast<std::int32_t>(op.q.dim(1));
  problem.kv_heads = static_cast<std::int32_t>(op.k.dim(1));
  problem.group = problem.heads / problem.kv_heads;
  problem.head_dim = static_cast<std::int32_t>(op.q.dim(2));
  problem.v_dim = op.v.defined() ? static_cast<std::int32_t>(op.v.dim(2)) : 0;
  problem.tokens = static_cast<std::int32_t>(op.q.dim(0));
  problem.keys = static_cast<std::int32_t>(op.k.dim(0));
  problem.scale = static_cast<float>(op.scale);
  problem.general = op.general;
  problem.rule = {.range = op.range, .geometry = op.geometry, .documents = op.documents};
  if (problem.head_dim > kMostDim || problem.v_dim > kMostDim) {
    fail_config("attention on the GPU takes head dims up to " + std::to_string(kMostDim) +
                ", not " + std::to_string(std::max(problem.head_dim, problem.v_dim)) +
                "; lower model.head_dim or use device: cpu");
  }
  if (problem.group > RowMap::kMostGroup) {
    fail_config("attention on the GPU takes up to " + std::to_string(RowMap::kMostGroup) +
                " heads to a KV head, not " + std::to_string(problem.group) +
                "; raise model.kv_heads or use device: cpu");
  }
  // Rows are counted in 32 bits, and a tile of them may pass the last.
  nsa::check(
      op.q.dim(0) * problem.group < std::numeric_limits<std::int32_t>::max() - RowMap::kMostOffset,
      "range attention: too many rows for one call");
  return problem;
}

}  // namespace

void range_attention_forward(const RangeAttentionForward& op, cudaStream_t stream) {
  if (op.q.dim(0) == 0) return;
  with_device_type(op.q.dtype(), [&]<class T>() {
    RangeProblem<T> problem = range_problem<T>(op);
    problem.out = elements<T>(op.out);
    if constexpr (sizeof(T) == 2) {
      range_forward_tensor(problem, stream);
    } else {
      range_forward_plain(problem, stream);
    }
  });
}

void range_attention_backward(const RangeAttentionBackward& op, cudaStream_t stream,
                              Scratch::Frame& frame, int multiprocessors) {
  if (op.q.dim(0) == 0) return;
  with_device_type(op.q.dtype(), [&]<class T>() {
    RangeProblem<T> problem = range_problem<T>(op);
    problem.dout = elements<T>(op.dout);
    problem.dq = elements<T>(op.dq);
    problem.dk = elements<T>(op.dk);
    problem.dv = elements<T>(op.dv);
    problem.gates = op.gates;
    problem.deltas = op.deltas;
    problem.stat_stride = static_cast<std::int32_t>(op.stat_stride);
    problem.accumulate_dq = op.accumulate_dq;
    if constexpr (sizeof(T) == 2) {
      range_backward_queries_tensor(problem, stream);
      if (problem.keys == 0) return;
      range_backward_keys_tensor(
          problem, {.longest = op.longest, .multiprocessors = multiprocessors, .frame = &frame},
          stream);
    } else {
      range_backward_plain(problem, stream);
    }
  });
}

}  // namespace nsa::cuda
