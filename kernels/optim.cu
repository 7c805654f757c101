// The optimiser: norm of the gradient and AdamW, on flat tensors.

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "core/bf16.h"
#include "core/philox.h"
#include "kernels/common/check.h"
#include "kernels/common/pack.cuh"
#include "kernels/common/reduce.cuh"
#include "kernels/cuda_ops.h"

namespace nsa::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kSquaresPerBlock = 65536;
constexpr std::int64_t kChunk = 16384;  // elements that one block updates

/// One block: 65,536 elements, read once (4 bytes each); their squares are added in fp64 in an
/// order that depends on the count and on `packs` alone: whether x starts at 16 bytes.
__global__ void __launch_bounds__(kThreads)
    square_sum_kernel(double* partials, const float* x, std::int64_t count, bool packs) {
  const std::int64_t begin = blockIdx.x * kSquaresPerBlock;
  const std::int64_t end = begin + kSquaresPerBlock < count ? begin + kSquaresPerBlock : count;
  double sum = 0;
  const std::int64_t aligned = packs ? begin + (end - begin) / 4 * 4 : begin;
  for (std::int64_t i = begin + threadIdx.x * 4; i < aligned; i += kThreads * 4) {
    float value[4];
    load(x + i, value);
#pragma unroll
    for (int j = 0; j < 4; ++j)
      sum += static_cast<double>(value[j]) * static_cast<double>(value[j]);
  }
  for (std::int64_t i = aligned + threadIdx.x; i < end; i += kThreads) {
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

/// One block in all: adds 8 bytes for every 65,536 elements.
__global__ void __launch_bounds__(kThreads)
    add_partials_kernel(double* total, const double* partials, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads) sum += partials[i];
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) *total += sum;
}

/// A piece of an AdamWRange, and what its bias correction comes to.
struct Chunk {
  std::int64_t begin;
  std::int32_t count;
  float m_scale, v_scale, decay;
};

/// T: of the weights, M: of the moments.
template <class T, class M>
struct Update {
  T* weights;  ///< null: the master itself
  float* master;
  M* m;
  M* v;
  const float* grad;
  const double* grad_square_sum;
  const Chunk* chunks;
  float beta1, beta2, rest1, rest2;  ///< rest: 1 - beta, made in fp64
  float step, eps;
  double grad_scale, max_norm;
  std::uint64_t rounding_key;  ///< of moments in bf16
  bool packs;                  ///< all tensors start at a pack of 4
};

/// Whether an address takes packs of 4; null does.
template <class T>
bool starts_a_pack(const T* data) {
  return reinterpret_cast<std::uintptr_t>(data) % sizeof(Pack<T, 4>) == 0;
}

/// Moments of neighbours in one pack of four, rounded to bf16 by 16 random bits each.
template <class T, int kWidth>
__device__ __forceinline__ void store_rounded(const Update<T, bf16>& p, std::int64_t at,
                                              const float (&m)[kWidth], const float (&v)[kWidth]) {
  const auto random = philox(p.rounding_key, 0, static_cast<std::uint64_t>(at) / 4);
  Pack<std::uint16_t, kWidth> m_bits;
  Pack<std::uint16_t, kWidth> v_bits;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const int word = kWidth == 4 ? i : static_cast<int>(at % 4);
    const std::uint32_t bits = word == 0   ? random[0]
                               : word == 1 ? random[1]
                               : word == 2 ? random[2]
                                           : random[3];
    m_bits.at[i] = to_bf16_at_random(m[i], bits & 0xFFFFU);
    v_bits.at[i] = to_bf16_at_random(v[i], bits >> 16U);
  }
  *reinterpret_cast<Pack<std::uint16_t, kWidth>*>(p.m + at) = m_bits;
  *reinterpret_cast<Pack<std::uint16_t, kWidth>*>(p.v + at) = v_bits;
}

template <class T, class M, int kWidth>
__device__ __forceinline__ void update_pack(const Update<T, M>& p, const Chunk& chunk, float scale,
                                            std::int64_t at) {
  float grad[kWidth];
  float master[kWidth];
  float m[kWidth];
  float v[kWidth];
  load(p.grad + at, grad);
  load(p.master + at, master);
  load(p.m + at, m);
  load(p.v + at, v);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const float g = grad[i] * scale;
    // Fused as on the CPU, so that both give the same bits.
    m[i] = fmaf(p.beta1, m[i], p.rest1 * g);
    v[i] = fmaf(p.beta2, v[i], p.rest2 * (g * g));
    const float direction = m[i] * chunk.m_scale / (sqrtf(v[i] * chunk.v_scale) + p.eps);
    master[i] = fmaf(-p.step, fmaf(chunk.decay, master[i], direction), master[i]);
  }
  if constexpr (std::is_same_v<M, float>) {
    store(p.m + at, m);
    store(p.v + at, v);
  } else {
    store_rounded(p, at, m, v);
  }
  store(p.master + at, master);
  if (p.weights != nullptr) store(p.weights + at, master);
}

/// One block: one chunk. Reads master, m, v and gradient, writes the first three and, where they
/// are not the master itself, the weights, once each: 12 + 4 sizeof(M) + sizeof(T) bytes an
/// element. Clips without telling the host; fp32, the norm in fp64. Chunks and tensors that start
/// anywhere take single elements.
template <class T, class M>
__global__ void __launch_bounds__(kThreads) adamw_kernel(const Update<T, M> p) {
  const Chunk chunk = p.chunks[blockIdx.x];
  const double norm = p.grad_scale * sqrt(*p.grad_square_sum);
  if (!isfinite(norm)) return;
  const bool clips = p.max_norm > 0 && norm > p.max_norm;
  const auto scale = static_cast<float>(clips ? p.grad_scale * (p.max_norm / norm) : p.grad_scale);
  constexpr int kWidth = 4;
  const bool packs = p.packs && chunk.begin % kWidth == 0;
  const std::int32_t packed = packs ? chunk.count / kWidth * kWidth : 0;
  for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x) * kWidth; i < packed;
       i += kThreads * kWidth) {
    update_pack<T, M, kWidth>(p, chunk, scale, chunk.begin + i);
  }
  for (std::int32_t i = packed + static_cast<std::int32_t>(threadIdx.x); i < chunk.count;
       i += kThreads) {
    update_pack<T, M, 1>(p, chunk, scale, chunk.begin + i);
  }
}

std::vector<Chunk> chunks_of(const AdamW& op) {
  std::vector<Chunk> chunks;
  for (const AdamWRange& range : op.ranges) {
    const auto updates = static_cast<double>(range.updates);
    for (std::int64_t begin = range.begin; begin < range.end; begin += kChunk) {
      chunks.push_back({.begin = begin,
                        .count = static_cast<std::int32_t>(std::min(kChunk, range.end - begin)),
                        .m_scale = static_cast<float>(1 / (1 - std::pow(op.beta1, updates))),
                        .v_scale = static_cast<float>(1 / (1 - std::pow(op.beta2, updates))),
                        .decay = static_cast<float>(range.weight_decay)});
    }
  }
  return chunks;
}

template <class T, class M>
void update(const AdamW& op, const Chunk* chunks, unsigned count, cudaStream_t stream) {
  const bool own = op.weights.data() != op.master.data();
  Update<T, M> p = {.weights = own ? elements<T>(op.weights) : nullptr,
                    .master = elements<float>(op.master),
                    .m = elements<M>(op.m),
                    .v = elements<M>(op.v),
                    .grad = elements<float>(op.grad),
                    .grad_square_sum = op.grad_square_sum.as<double>(),
                    .chunks = chunks,
                    .beta1 = static_cast<float>(op.beta1),
                    .beta2 = static_cast<float>(op.beta2),
                    .rest1 = static_cast<float>(1 - op.beta1),
                    .rest2 = static_cast<float>(1 - op.beta2),
                    .step = static_cast<float>(op.learning_rate),
                    .eps = static_cast<float>(op.eps),
                    .grad_scale = op.grad_scale,
                    .max_norm = op.max_norm,
                    .rounding_key = op.rounding_key,
                    .packs = false};
  p.packs = starts_a_pack(p.weights) && starts_a_pack(p.master) && starts_a_pack(p.m) &&
            starts_a_pack(p.v) && starts_a_pack(p.grad);
  adamw_kernel<T, M><<<count, kThreads, 0, stream>>>(p);
  check_launch("adamw_kernel");
}

}  // namespace

void CudaOps::apply(const SumSquares& op) {
  const std::int64_t count = op.x.size();
  const std::int64_t blocks = (count + kSquaresPerBlock - 1) / kSquaresPerBlock;
  if (blocks == 0) return;
  Scratch::Frame frame(scratch_);
  auto* partials = frame.take<double>(blocks);
  square_sum_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream_>>>(
      partials, elements<float>(op.x), count, starts_a_pack(elements<float>(op.x)));
  check_launch("square_sum_kernel");
  add_partials_kernel<<<1, kThreads, 0, stream_>>>(op.sum.as<double>(), partials, blocks);
  check_launch("add_partials_kernel");
}

void CudaOps::apply(const AdamW& op) {
  const std::vector<Chunk> chunks = chunks_of(op);
  if (chunks.empty()) return;
  const auto count = static_cast<std::int64_t>(chunks.size());
  Scratch::Frame frame(scratch_);
  auto* table = frame.take<Chunk>(count);
  staging_.upload(table, chunks.data(), count * static_cast<std::int64_t>(sizeof(Chunk)));
  with_device_type(op.weights.dtype(), [&]<class T>() {
    with_device_type(op.m.dtype(), [&]<class M>() {
      update<T, M>(op, table, static_cast<unsigned>(count), stream_);
    });
  });
}

}  // namespace nsa::cuda
