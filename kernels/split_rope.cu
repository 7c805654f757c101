// From the fused projection to heads: layout change, QK-norm and RoPE in one pass, and back.

#include <algorithm>

#include "kernels/common/check.h"
#include "kernels/common/column_sum.h"
#include "kernels/cuda_ops.h"
#include "kernels/split_layout.cuh"
#include "kernels/split_rope.cuh"

namespace nsa::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kNorms = 4;  // q, k0, k1, k2
/// Blocks whose shares of the QK-norm gradients are summed afterwards; a number of its own, so that
/// the order of the sum does not depend on the GPU.
constexpr std::int64_t kNormBlocks = 528;

__device__ __forceinline__ std::uint32_t global_warp() {
  return blockIdx.x * kWarps + threadIdx.x / kWarpSize;
}

/// 1 / rms of a head of the projection; the whole warp must call it.
template <int kWidth, class T>
__device__ __forceinline__ float head_rstd(const SplitLane<T>& lane, const T* x, float eps) {
  float squares = 0.0F;
  for (std::int32_t s = lane.lane; s < lane.slots; s += lane.part.lanes) {
    const SlotValues<kWidth> value = load_slot<kWidth>(x, slot_of<kWidth>(lane.part, s));
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      squares = fmaf(value.low[i], value.low[i], squares);
      squares = fmaf(value.high[i], value.high[i], squares);
    }
  }
  return rsqrtf(head_sum(squares, lane.part.lanes) / static_cast<float>(lane.part.dim) + eps);
}

/// One block: 8 warps' worth of heads, a few lanes a head. Reads the projection (with QK-norm once
/// more from L1) and writes each tensor, once: 2 * sizeof(T) bytes an element, and 8 bytes of turns
/// a pair of channels, from cache after a token's first head. fp32 arithmetic, turns rounded once
/// from fp64. Any extents: kWidth divides whatever must stay aligned.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    split_forward_kernel(const T* projection, const __grid_constant__ SplitLayout<T> layout,
                         std::uint32_t warps) {
  if (global_warp() >= warps) return;
  const SplitLane<T> lane = split_lane(layout, global_warp());
  const SplitPart<T>& part = lane.part;
  const T* x = projection + lane.column;
  const float rstd =
      layout.normalises && part.norm != nullptr ? head_rstd<kWidth>(lane, x, layout.eps) : 1.0F;
  for (std::int32_t s = lane.lane; s < lane.slots; s += part.lanes) {
    const Slot slot = slot_of<kWidth>(part, s);
    SlotValues<kWidth> value = load_slot<kWidth>(x, slot);
    if (part.norm != nullptr) {
      const SlotValues<kWidth> weight = load_slot<kWidth>(part.norm, slot);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        value.low[i] *= rstd * weight.low[i];
        value.high[i] *= rstd * weight.high[i];
      }
    }
    for (std::int32_t source = 0; source < part.sources; ++source) {
      SlotValues<kWidth> turned = value;
      if (slot.paired && part.turns[source]) turn_slot(turned, lane.turns, slot, 1.0F);
      store_slot<kWidth>(part.tensor[source] + lane.offset, slot, turned);
    }
  }
}

/// The gradient of the normalised head: the sum over the part's tensors, turned back.
template <int kWidth, class T>
__device__ __forceinline__ SlotValues<kWidth> unturned(const SplitLane<T>& lane, const Slot& slot) {
  SlotValues<kWidth> sum = {};
  for (std::int32_t source = 0; source < lane.part.sources; ++source) {
    SlotValues<kWidth> dy = load_slot<kWidth>(lane.part.tensor[source] + lane.offset, slot);
    if (slot.paired && lane.part.turns[source]) turn_slot(dy, lane.turns, slot, -1.0F);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      sum.low[i] += dy.low[i];
      sum.high[i] += dy.high[i];
    }
  }
  return sum;
}

/// Adds a slot's share of a norm's gradient to `dnorm`: first over the heads of the warp, which
/// hold the same channels in lanes that differ in the upper bits. The whole warp must call it.
template <int kWidth, class T>
__device__ __forceinline__ void add_norm_share(float* dnorm, const SplitLane<T>& lane, bool active,
                                               const Slot& slot, SlotValues<kWidth>& share) {
  for (std::int32_t other = lane.part.lanes; other < kWarpSize; other *= 2) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      share.low[i] += __shfl_xor_sync(0xFFFFFFFFU, share.low[i], other);
      share.high[i] += __shfl_xor_sync(0xFFFFFFFFU, share.high[i], other);
    }
  }
  // Lanes beyond the last head have no slots, but the warp's first head is always there.
  if (!active || static_cast<std::int32_t>(threadIdx.x % kWarpSize) >= lane.part.lanes) return;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    dnorm[slot.low + i] += share.low[i];
    if (slot.paired) dnorm[slot.high + i] += share.high[i];
  }
}

/// The backward of a normalised head. The whole warp must call it.
template <int kWidth, class T>
__device__ __forceinline__ void norm_backward(T* dx, const T* x, float* dnorm,
                                              const SplitLane<T>& lane, float eps) {
  const SplitPart<T>& part = lane.part;
  const float rstd = head_rstd<kWidth>(lane, x, eps);
  float dot = 0.0F;
  for (std::int32_t begin = 0; begin < part.slots; begin += part.lanes) {
    const std::int32_t s = begin + lane.lane;
    const bool active = s < lane.slots;
    const Slot slot = slot_of<kWidth>(part, s);
    SlotValues<kWidth> share = {};
    if (active) {
      const SlotValues<kWidth> g = unturned<kWidth>(lane, slot);
      const SlotValues<kWidth> value = load_slot<kWidth>(x, slot);
      const SlotValues<kWidth> weight = load_slot<kWidth>(part.norm, slot);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        dot = fmaf(g.low[i] * weight.low[i], value.low[i], dot);
        dot = fmaf(g.high[i] * weight.high[i], value.high[i], dot);
        share.low[i] = g.low[i] * value.low[i] * rstd;
        share.high[i] = g.high[i] * value.high[i] * rstd;
      }
    }
    add_norm_share<kWidth>(dnorm, lane, active, slot, share);
  }
  const float along = head_sum(dot, part.lanes) / static_cast<float>(part.dim) * rstd * rstd;
  for (std::int32_t s = lane.lane; s < lane.slots; s += part.lanes) {
    const Slot slot = slot_of<kWidth>(part, s);
    SlotValues<kWidth> g = unturned<kWidth>(lane, slot);
    const SlotValues<kWidth> value = load_slot<kWidth>(x, slot);
    const SlotValues<kWidth> weight = load_slot<kWidth>(part.norm, slot);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      g.low[i] = rstd * (g.low[i] * weight.low[i] - value.low[i] * along);
      g.high[i] = rstd * (g.high[i] * weight.high[i] - value.high[i] * along);
    }
    store_slot<kWidth>(dx, slot, g);
  }
}

/// One block: 8 warps' worth of heads; with QK-norm every gridDim.x-th such piece. Reads each
/// gradient and, with QK-norm, the projection (the second time from L1), writes dprojection once:
/// 2 * sizeof(T) bytes an element, 3 with QK-norm. A warp's shares of the norms' gradients stay in
/// its own part of shared memory; one partial sum a block. fp32 arithmetic; any extents.
template <class T, int kWidth, bool kNormalises>
__global__ void __launch_bounds__(kThreads)
    split_backward_kernel(T* dprojection, const T* projection, float* partials,
                          const __grid_constant__ SplitLayout<T> layout, std::uint32_t warps) {
  extern __shared__ float shares[];  // [kWarps, kNorms, head dim], with QK-norm only
  const std::int32_t dim = layout.parts[0].dim;
  const std::int32_t norms = kNormalises ? kNorms * dim : 0;
  float* share = shares + static_cast<std::int32_t>(threadIdx.x) / kWarpSize * norms;
  for (auto i = static_cast<std::int32_t>(threadIdx.x % kWarpSize); i < norms; i += kWarpSize) {
    share[i] = 0.0F;
  }
  __syncwarp();
  for (std::uint32_t warp = global_warp(); warp < warps; warp += gridDim.x * kWarps) {
    const SplitLane<T> lane = split_lane(layout, warp);
    const SplitPart<T>& part = lane.part;
    T* dx = dprojection + lane.column;
    if constexpr (kNormalises) {
      if (part.norm != nullptr) {
        norm_backward<kWidth>(dx, projection + lane.column, share + part.norm_slot * dim, lane,
                              layout.eps);
        __syncwarp();  // the next piece's lanes hold other channels
        continue;
      }
    }
    for (std::int32_t s = lane.lane; s < lane.slots; s += part.lanes) {
      const Slot slot = slot_of<kWidth>(part, s);
      store_slot<kWidth>(dx, slot, unturned<kWidth>(lane, slot));
    }
  }
  if (norms == 0) return;
  __syncthreads();
  for (auto i = static_cast<std::int32_t>(threadIdx.x); i < norms; i += kThreads) {
    float sum = 0.0F;
    for (int w = 0; w < kWarps; ++w) sum += shares[w * norms + i];
    partials[static_cast<std::int64_t>(blockIdx.x) * norms + i] = sum;
  }
}

unsigned blocks_of(std::uint32_t warps) {
  return (warps + kWarps - 1) / kWarps;
}

}  // namespace

void CudaOps::apply(const SplitRopeForward& op) {
  if (op.q.dim(0) == 0) return;
  with_device_type(op.projection.dtype(), [&]<class T>() {
    SplitLayout<T> layout = make_layout<T>(op, op.q, op.pairs, op.gate_logits);
    layout.documents = documents_.view(op.documents);
    layout.turns = rope_table_.turns(op.rope, op.documents.longest());
    with_packs(layout, [&]<int kWidth>(std::uint32_t warps) {
      split_forward_kernel<T, kWidth>
          <<<blocks_of(warps), kThreads, 0, stream_>>>(elements<T>(op.projection), layout, warps);
      check_launch("split_forward_kernel");
    });
  });
}

void CudaOps::apply(const SplitRopeBackward& op) {
  const SplitRopeForward& forward = op.layout;
  if (forward.q.dim(0) == 0) return;
  const std::int64_t dim = forward.q.dim(2);
  const std::int64_t norms = forward.q_norm.defined() ? kNorms * dim : 0;
  Scratch::Frame frame(scratch_);
  auto* partials = frame.take<float>(kNormBlocks * norms);
  std::int64_t blocks = 0;
  with_device_type(op.dprojection.dtype(), [&]<class T>() {
    SplitLayout<T> layout = make_layout<T>(forward, op.dq, op.dpairs, op.dgate_logits);
    layout.documents = documents_.view(forward.documents);
    layout.turns = rope_table_.turns(forward.rope, forward.documents.longest());
    const std::int64_t shared = kWarps * norms * static_cast<std::int64_t>(sizeof(float));
    with_packs(layout, [&]<int kWidth>(std::uint32_t warps) {
      blocks = blocks_of(warps);
      if (norms > 0) blocks = std::min(blocks, kNormBlocks);
      const auto kernel = norms > 0 ? split_backward_kernel<T, kWidth, true>
                                    : split_backward_kernel<T, kWidth, false>;
      check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(shared)));
      kernel<<<static_cast<unsigned>(blocks), kThreads, static_cast<std::size_t>(shared),
               stream_>>>(elements<T>(op.dprojection),
                          norms == 0 ? nullptr : elements<T>(forward.projection), partials, layout,
                          warps);
      check_launch("split_backward_kernel");
    });
  });
  if (norms == 0) return;
  auto* sums = frame.take<float>(norms);
  check(cudaMemsetAsync(sums, 0, static_cast<std::size_t>(norms) * sizeof(float), stream_));
  add_column_sums(sums, partials, blocks, norms, stream_);
  add_column_sums(elements<float>(op.dq_norm), sums, 1, dim, stream_);
  add_column_sums(elements<float>(op.dk_norm), sums + dim, 1, op.dk_norm.size(), stream_);
}

}  // namespace nsa::cuda
