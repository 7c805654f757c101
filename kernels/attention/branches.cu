// The ops whose keys are ranges: dense and window attention, and the backward of the compressed
// branch.

#include "kernels/attention/range_attention.h"
#include "kernels/common/check.h"
#include "kernels/common/reduce.cuh"
#include "kernels/common/types.cuh"
#include "kernels/cuda_ops.h"
#include "ops/gate.h"

namespace nsa::cuda {
namespace {

constexpr int kWarps = 8;

/// One warp: the product of one row of out and dout [rows, dim], in fp32.
template <class T>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    row_products_kernel(float* deltas, const T* out, const T* dout, std::int64_t rows,
                        std::int64_t dim) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarpSize;
  if (row >= rows) return;
  float sum = 0.0F;
  for (std::int64_t i = threadIdx.x % kWarpSize; i < dim; i += kWarpSize) {
    sum = fmaf(to_float(out[row * dim + i]), to_float(dout[row * dim + i]), sum);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % kWarpSize == 0) deltas[row] = sum;
}

template <class T>
void row_products(float* deltas, const Tensor& out, const Tensor& dout, cudaStream_t stream) {
  const std::int64_t rows = out.dim(0) * out.dim(1);
  if (rows == 0) return;
  row_products_kernel<T>
      <<<static_cast<unsigned>((rows + kWarps - 1) / kWarps), kWarps * kWarpSize, 0, stream>>>(
          deltas, elements<T>(out), elements<T>(dout), rows, out.dim(2));
  check_launch("row_products_kernel");
}

/// What the backward of a branch hands over as it is.
RangeAttentionBackward branch_backward(const BranchGradients& op, Branch branch, bool general) {
  RangeAttentionBackward range;
  range.dq = op.dq;
  range.dk = op.dk;
  range.dv = op.dv;
  range.q = op.q;
  range.k = op.k;
  range.v = op.v;
  range.lse = op.lse;
  range.dout = op.dout;
  range.gates = elements<float>(op.gates) + branch;
  range.deltas = elements<float>(op.deltas) + branch;
  range.stat_stride = 3;
  range.accumulate_dq = op.accumulate_dq;
  range.scale = op.scale;
  range.geometry = op.geometry;
  range.longest = op.documents.longest();
  range.general = general;
  return range;
}

/// What a forward hands over as it is; `documents` as the device sees them.
template <class Forward>
RangeAttentionForward forward_of(const Forward& op, KeyRange range, const NsaGeometry& geometry,
                                 const DocumentView& documents, bool general) {
  return {.out = op.out,
          .lse = op.lse,
          .q = op.q,
          .k = op.k,
          .v = op.v,
          .scale = op.scale,
          .range = range,
          .documents = documents,
          .geometry = geometry,
          .general = general};
}

}  // namespace

void CudaOps::apply(const DenseAttentionForward& op) {
  range_attention_forward(
      forward_of(op, KeyRange::kCausal, {}, documents_.view(op.documents), general_), stream_);
}

void CudaOps::apply(const DenseAttentionBackward& op) {
  Scratch::Frame frame(scratch_);
  auto* deltas = frame.take<float>(op.lse.size());
  with_device_type(op.q.dtype(),
                   [&]<class T>() { row_products<T>(deltas, op.out, op.dout, stream_); });
  range_attention_backward({.dq = op.dq,
                            .dk = op.dk,
                            .dv = op.dv,
                            .q = op.q,
                            .k = op.k,
                            .v = op.v,
                            .lse = op.lse,
                            .dout = op.dout,
                            .gates = nullptr,
                            .deltas = deltas,
                            .stat_stride = 1,
                            .accumulate_dq = false,
                            .scale = op.scale,
                            .range = KeyRange::kCausal,
                            .documents = documents_.view(op.documents),
                            .geometry = {},
                            .longest = op.documents.longest(),
                            .general = general_},
                           stream_, frame, multiprocessors_);
}

void CudaOps::apply(const WindowAttentionForward& op) {
  range_attention_forward(
      forward_of(op, KeyRange::kWindow, op.geometry, documents_.view(op.documents), general_),
      stream_);
}

void CudaOps::apply(const WindowAttentionBackward& op) {
  Scratch::Frame frame(scratch_);
  RangeAttentionBackward range = branch_backward(op, kWindow, general_);
  range.range = KeyRange::kWindow;
  range.documents = documents_.view(op.documents);
  range_attention_backward(range, stream_, frame, multiprocessors_);
}

void CudaOps::apply(const CompressedAttentionBackward& op) {
  Scratch::Frame frame(scratch_);
  RangeAttentionBackward range = branch_backward(op, kCompressed, general_);
  range.range = KeyRange::kCompressed;
  range.documents = documents_.view(op.documents, op.geometry);
  range_attention_backward(range, stream_, frame, multiprocessors_);
}

}  // namespace nsa::cuda
