// From the fused projection to heads: layout change, QK-norm and RoPE in one pass, and back.

#include <algorithm>

#include "kernels/common/check.h"
#include "kernels/common/column_sum.h"
#include "kernels/common/pack.cuh"
#include "kernels/common/reduce.cuh"
#include "kernels/cuda_ops.h"
#include "kernels/split_rope.cuh"

namespace nsa::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kNorms = 4;  // q, k0, k1, k2
/// Blocks whose shares of the QK-norm gradients are summed afterwards.
constexpr std::int64_t kBackwardBlocks = 1056;

/// A head of a part.
template <class T>
struct HeadRow {
  const SplitPart<T>* part;
  std::int64_t column;  ///< in the projection row
  std::int64_t offset;  ///< in the part's tensors
};

template <class T>
__device__ __forceinline__ HeadRow<T> head_row(const SplitLayout<T>& layout, std::int64_t token,
                                               std::int32_t row) {
  std::int32_t i = 0;
  while (row >= layout.parts[i].heads) {
    row -= layout.parts[i].heads;
    ++i;
  }
  const SplitPart<T>& part = layout.parts[i];
  return {&part, part.column + static_cast<std::int64_t>(row) * part.dim,
          (token * part.heads + row) * part.dim};
}

template <class T>
__device__ __forceinline__ const float2* turn_of(const SplitLayout<T>& layout, std::int64_t token) {
  if (layout.turns == nullptr) return nullptr;
  const std::int64_t position = token - layout.documents.bounds[layout.documents.of_token[token]];
  return layout.turns + position * layout.half;
}

/// 1 / rms of a head of the projection.
template <class T>
__device__ __forceinline__ float head_rstd(const T* x, std::int32_t dim, float eps, int lane) {
  float squares = 0.0F;
  for (std::int32_t c = lane; c < dim; c += kWarpSize) {
    const float value = to_float(x[c]);
    squares = fmaf(value, value, squares);
  }
  return rsqrtf(warp_sum(squares) / static_cast<float>(dim) + eps);
}

/// One warp: one head of one token; lanes take channels c and c + half, which turn together. Reads
/// the projection once (twice with QK-norm), writes each tensor once.
template <class T>
__global__ void __launch_bounds__(kThreads)
    split_forward_kernel(const T* projection, const SplitLayout<T> layout) {
  const std::int64_t token = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const float2* turn = turn_of(layout, token);
  for (std::int32_t row = static_cast<std::int32_t>(threadIdx.x) / kWarpSize; row < layout.rows;
       row += kWarps) {
    const HeadRow<T> head = head_row(layout, token, row);
    const SplitPart<T>& part = *head.part;
    const T* x = projection + token * layout.columns + head.column;
    const float rstd = part.norm == nullptr ? 1.0F : head_rstd(x, part.dim, layout.eps, lane);
    const auto value = [&](std::int32_t c) {
      const float plain = to_float(x[c]);
      return part.norm == nullptr ? plain : plain * rstd * to_float(part.norm[c]);
    };
    for (std::int32_t s = 0; s < part.sources; ++s) {
      T* y = part.tensor[s] + head.offset;
      const std::int32_t half = part.turns[s] ? layout.half : 0;
      for (std::int32_t c = lane; c < half; c += kWarpSize) {
        const float low = value(c);
        const float high = value(c + half);
        y[c] = from_float<T>(low * turn[c].x - high * turn[c].y);
        y[c + half] = from_float<T>(high * turn[c].x + low * turn[c].y);
      }
      for (std::int32_t c = 2 * half + lane; c < part.dim; c += kWarpSize) {
        y[c] = from_float<T>(value(c));
      }
    }
  }
}

/// The gradient of channel c of the normalised head: the sum over the part's tensors, turned back.
template <class T>
__device__ __forceinline__ float unturned(const SplitLayout<T>& layout, const HeadRow<T>& head,
                                          const float2* turn, std::int32_t c) {
  const SplitPart<T>& part = *head.part;
  float sum = 0.0F;
  for (std::int32_t s = 0; s < part.sources; ++s) {
    const T* dy = part.tensor[s] + head.offset;
    const std::int32_t half = part.turns[s] ? layout.half : 0;
    if (c >= 2 * half) {
      sum += to_float(dy[c]);
    } else if (c < half) {
      sum += to_float(dy[c]) * turn[c].x + to_float(dy[c + half]) * turn[c].y;
    } else {
      sum += to_float(dy[c]) * turn[c - half].x - to_float(dy[c - half]) * turn[c - half].y;
    }
  }
  return sum;
}

/// One block: every gridDim.x-th token; a warp one head. Reads each gradient and, with QK-norm, the
/// projection; writes dprojection once. A warp's share of the norms' gradients stays in its own
/// part of shared memory, each lane at its own channels; one partial sum a block.
template <class T>
__global__ void __launch_bounds__(kThreads)
    split_backward_kernel(T* dprojection, const T* projection, float* partials,
                          std::int32_t norm_dim, const SplitLayout<T> layout) {
  extern __shared__ float shares[];  // [kWarps, kNorms, norm_dim]
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const std::int32_t norms = layout.normalises ? kNorms * norm_dim : 0;
  float* share = shares + warp * norms;
  for (std::int32_t i = lane; i < norms; i += kWarpSize) share[i] = 0.0F;
  __syncwarp();
  for (std::int64_t token = blockIdx.x; token < layout.tokens; token += gridDim.x) {
    const float2* turn = turn_of(layout, token);
    for (std::int32_t row = warp; row < layout.rows; row += kWarps) {
      const HeadRow<T> head = head_row(layout, token, row);
      const SplitPart<T>& part = *head.part;
      T* dx = dprojection + token * layout.columns + head.column;
      if (part.norm == nullptr) {
        for (std::int32_t c = lane; c < part.dim; c += kWarpSize) {
          dx[c] = from_float<T>(unturned(layout, head, turn, c));
        }
        continue;
      }
      const T* x = projection + token * layout.columns + head.column;
      const float rstd = head_rstd(x, part.dim, layout.eps, lane);
      float* dnorm = share + part.norm_slot * norm_dim;
      float dot = 0.0F;
      for (std::int32_t c = lane; c < part.dim; c += kWarpSize) {
        const float g = unturned(layout, head, turn, c);
        const float value = to_float(x[c]);
        dot = fmaf(g * to_float(part.norm[c]), value, dot);
        dnorm[c] = fmaf(g * value, rstd, dnorm[c]);
      }
      const float along = warp_sum(dot) / static_cast<float>(part.dim) * rstd * rstd;
      for (std::int32_t c = lane; c < part.dim; c += kWarpSize) {
        const float g = unturned(layout, head, turn, c);
        dx[c] = from_float<T>(rstd * (g * to_float(part.norm[c]) - to_float(x[c]) * along));
      }
    }
  }
  __syncthreads();
  for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < norms; i += kThreads) {
    float sum = 0.0F;
    for (int w = 0; w < kWarps; ++w) sum += shares[w * norms + i];
    partials[static_cast<std::int64_t>(blockIdx.x) * norms + i] = sum;
  }
}

/// Collects the parts of a row from left to right.
template <class T>
class LayoutBuilder {
 public:
  explicit LayoutBuilder(SplitLayout<T>& layout) : layout_(layout) {}

  /// The next columns of the row.
  SplitPart<T>& add(std::int64_t heads, std::int64_t dim) {
    SplitPart<T>& part = layout_.parts[layout_.count++];
    part = {.column = layout_.columns,
            .heads = static_cast<std::int32_t>(heads),
            .dim = static_cast<std::int32_t>(dim),
            .norm = nullptr,
            .norm_slot = 0,
            .sources = 0,
            .tensor = {},
            .turns = {}};
    layout_.rows += part.heads;
    layout_.columns += heads * dim;
    return part;
  }
  static void attach(SplitPart<T>& part, const Tensor& tensor, bool turns) {
    if (!tensor.defined()) return;
    part.tensor[part.sources] = elements<T>(tensor);
    part.turns[part.sources++] = turns;
  }

 private:
  SplitLayout<T>& layout_;
};

/// Keys, then values, of the pairs that share columns: pairs [first, last).
template <class T>
void add_pairs(LayoutBuilder<T>& builder, const SplitRopeForward& op,
               const std::array<KvPair, 3>& pairs, std::size_t first, std::size_t last) {
  const auto defined = [&](auto member) -> const Tensor* {
    for (std::size_t i = first; i < last; ++i) {
      if ((op.pairs[i].*member).defined()) return &(op.pairs[i].*member);
    }
    return nullptr;
  };
  if (const Tensor* k = defined(&KvPair::k)) {
    SplitPart<T>& part = builder.add(k->dim(1), k->dim(2));
    for (std::size_t i = first; i < last; ++i) builder.attach(part, pairs[i].k, op.rotate[i]);
    if (op.q_norm.defined()) {
      const std::int64_t norm_row = op.share_kv ? 0 : static_cast<std::int64_t>(first);
      part.norm = elements<T>(op.k_norm) + norm_row * k->dim(2);
      part.norm_slot = 1 + static_cast<std::int32_t>(norm_row);
    }
  }
  if (const Tensor* v = defined(&KvPair::v)) {
    SplitPart<T>& part = builder.add(v->dim(1), v->dim(2));
    for (std::size_t i = first; i < last; ++i) builder.attach(part, pairs[i].v, false);
  }
}

/// `q`, `pairs` and `gates`: the tensors of the direction at hand.
template <class T>
SplitLayout<T> make_layout(const SplitRopeForward& op, const Tensor& q,
                           const std::array<KvPair, 3>& pairs, const Tensor& gates) {
  SplitLayout<T> layout{};
  layout.tokens = op.q.dim(0);
  layout.eps = static_cast<float>(op.norm_eps);
  layout.normalises = op.q_norm.defined();
  LayoutBuilder<T> builder(layout);
  SplitPart<T>& queries = builder.add(op.q.dim(1), op.q.dim(2));
  builder.attach(queries, q, true);
  queries.norm = elements<T>(op.q_norm);
  if (op.share_kv) {
    add_pairs(builder, op, pairs, 0, pairs.size());
  } else {
    for (std::size_t i = 0; i < pairs.size(); ++i) add_pairs(builder, op, pairs, i, i + 1);
  }
  if (op.gate_logits.defined()) builder.attach(builder.add(1, op.q.dim(1) * 3), gates, false);
  return layout;
}

}  // namespace

void CudaOps::apply(const SplitRopeForward& op) {
  const std::int64_t tokens = op.q.dim(0);
  if (tokens == 0) return;
  with_device_type(op.projection.dtype(), [&]<class T>() {
    SplitLayout<T> layout = make_layout<T>(op, op.q, op.pairs, op.gate_logits);
    layout.documents = documents_.view(op.documents);
    layout.half = static_cast<std::int32_t>(op.rope.rotary_dim / 2);
    layout.turns = rope_table_.turns(op.rope, op.documents.longest());
    split_forward_kernel<T><<<static_cast<unsigned>(tokens), kThreads, 0, stream_>>>(
        elements<T>(op.projection), layout);
    check_launch("split_forward_kernel");
  });
}

void CudaOps::apply(const SplitRopeBackward& op) {
  const SplitRopeForward& forward = op.layout;
  const std::int64_t tokens = forward.q.dim(0);
  if (tokens == 0) return;
  const std::int64_t dim = forward.q.dim(2);
  const std::int64_t blocks = std::min(tokens, kBackwardBlocks);
  const std::int64_t norms = forward.q_norm.defined() ? kNorms * dim : 0;
  Scratch::Frame frame(scratch_);
  auto* partials = frame.take<float>(blocks * norms);
  with_device_type(op.dprojection.dtype(), [&]<class T>() {
    SplitLayout<T> layout = make_layout<T>(forward, op.dq, op.dpairs, op.dgate_logits);
    layout.documents = documents_.view(forward.documents);
    layout.half = static_cast<std::int32_t>(forward.rope.rotary_dim / 2);
    layout.turns = rope_table_.turns(forward.rope, forward.documents.longest());
    const std::int64_t shared = kWarps * norms * static_cast<std::int64_t>(sizeof(float));
    const auto kernel = split_backward_kernel<T>;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared)));
    kernel<<<static_cast<unsigned>(blocks), kThreads, static_cast<std::size_t>(shared), stream_>>>(
        elements<T>(op.dprojection), norms == 0 ? nullptr : elements<T>(forward.projection),
        partials, static_cast<std::int32_t>(dim), layout);
    check_launch("split_backward_kernel");
  });
  if (norms == 0) return;
  auto* sums = frame.take<float>(norms);
  check(cudaMemsetAsync(sums, 0, static_cast<std::size_t>(norms) * sizeof(float), stream_));
  add_column_sums(sums, partials, blocks, norms, stream_);
  add_column_sums(elements<float>(op.dq_norm), sums, 1, dim, stream_);
  add_column_sums(elements<float>(op.dk_norm), sums + dim, 1, op.dk_norm.size(), stream_);
}

}  // namespace nsa::cuda
