// The ops whose keys are ranges: dense and window attention, and the backward of the compressed
// branch.

#include "kernels/attention/range_attention.h"
#include "kernels/common/check.h"
#include "kernels/common/pack.cuh"
#include "kernels/common/reduce.cuh"
#include "kernels/common/types.cuh"
#include "kernels/cuda_ops.h"
#include "ops/gate.h"

namespace nsa::cuda {
namespace {

constexpr int kThreads = 256;

/// `lanes` lanes of a warp, a power of two: the product of one row of out and dout [rows, dim].
/// Reads both once: 2 * sizeof(T) bytes an element. fp32 sums; kWidth divides dim.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    row_products_kernel(float* deltas, const T* out, const T* dout, std::int64_t rows,
                        std::int32_t dim, std::int32_t lanes) {
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t row = thread / lanes;
  const auto lane = static_cast<std::int32_t>(thread % lanes);
  float sum = 0.0F;
  for (std::int32_t i = lane * kWidth; row < rows && i < dim; i += lanes * kWidth) {
    float value[kWidth];
    float gradient[kWidth];
    load(out + row * dim + i, value);
    load(dout + row * dim + i, gradient);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sum = fmaf(value[j], gradient[j], sum);
  }
  for (std::int32_t other = lanes / 2; other > 0; other /= 2) {
    sum += __shfl_xor_sync(0xFFFFFFFFU, sum, other);
  }
  if (row < rows && lane == 0) deltas[row] = sum;
}

template <class T>
void row_products(float* deltas, const Tensor& out, const Tensor& dout, cudaStream_t stream) {
  const std::int64_t rows = out.dim(0) * out.dim(1);
  const auto dim = static_cast<std::int32_t>(out.dim(2));
  if (rows == 0) return;
  with_width<T>(dim, [&]<int kWidth>() {
    std::int32_t lanes = 1;
    while (lanes < kWarpSize && lanes * kWidth < dim) lanes *= 2;
    const std::int64_t blocks = (rows * lanes + kThreads - 1) / kThreads;
    row_products_kernel<T, kWidth><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
        deltas, elements<T>(out), elements<T>(dout), rows, dim, lanes);
    check_launch("row_products_kernel");
  });
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
