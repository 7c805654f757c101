// Attention over the selected blocks: which kernels run for which types and head dims.

#include <string>
#include <type_traits>

#include "kernels/cuda_ops.h"
#include "kernels/nsa/selected_kernels.h"
#include "ops/gate.h"

namespace nsa::cuda {
namespace {

void check_dims(std::int64_t head_dim, std::int64_t v_dim) {
  constexpr std::int64_t kMostDim = 256;
  if (head_dim <= kMostDim && v_dim <= kMostDim) return;
  fail_config("selected attention on cuda takes head dims up to 256, found " +
              std::to_string(head_dim) + " and " + std::to_string(v_dim) +
              ": use smaller heads or device: cpu");
}

}  // namespace

void CudaOps::apply(const SelectedAttentionForward& op) {
  check_dims(op.q.dim(2), op.v.dim(2));
  with_device_type(op.q.dtype(), [&]<class T>() {
    SelectedProblem<T> problem = selected_problem<T>(op, documents_.view(op.documents), general_);
    problem.out = elements<T>(op.out);
    if constexpr (std::is_same_v<T, bf16>) {
      if (fits_tensor_cores(problem.head_dim, problem.v_dim)) {
        return selected_forward_tensor(problem, stream_);
      }
    }
    selected_forward_plain(problem, stream_);
  });
}

void CudaOps::apply(const SelectedAttentionBackward& op) {
  check_dims(op.q.dim(2), op.v.dim(2));
  Scratch::Frame frame(scratch_);
  with_device_type(op.q.dtype(), [&]<class T>() {
    SelectedProblem<T> problem = selected_problem<T>(op, documents_.view(op.documents), general_);
    problem.dout = elements<T>(op.dout);
    problem.gates = op.gates.as<float>() + kSelected;
    problem.deltas = op.deltas.as<float>() + kSelected;
    problem.dq = elements<T>(op.dq);
    problem.dk = elements<T>(op.dk);
    problem.dv = elements<T>(op.dv);
    problem.accumulate_dq = op.accumulate_dq;
    if constexpr (std::is_same_v<T, bf16>) {
      if (fits_tensor_cores(problem.head_dim, problem.v_dim)) {
        selected_dq_tensor(problem, stream_);
        return selected_dkdv(problem, multiprocessors_, frame, stream_);
      }
    }
    selected_dq_plain(problem, stream_);
    selected_dkdv_plain(problem, list_queries(selection_of(problem), {}, frame, stream_), stream_);
  });
}

}  // namespace nsa::cuda
