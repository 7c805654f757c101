// Selected attention, forward, on tensor cores.

#include "kernels/common/check.h"
#include "kernels/nsa/selected_group.h"
#include "kernels/nsa/selected_kernels.h"
#include "kernels/nsa/selected_union.cuh"

namespace nsa::cuda {
namespace {

constexpr int kStages = 2;
/// Lower than any score: a maximum before the first key. Finite, so that differences are.
constexpr float kLowest = -1e30F;

template <int kHeadDim, int kValueDim>
constexpr int kStageBytes = kTileKeys*(kHeadDim + kValueDim) * 2;

/// One block: kUnionWarps warps of 16 rows (query, head) of one KV head against the union of the
/// blocks that their queries selected. Reads q, k, v, blocks; writes out and lse, every row by one
/// warp. Softmax over base 2 in fp32 with a running maximum, probabilities rounded to bf16 before
/// they meet v. Head dims up to the padded ones, multiples of 8; any select_block and group.
template <int kHeadDim, int kValueDim>
__global__ void __launch_bounds__(kUnionThreads, kHeadDim <= 128 ? 3 : 1)
    selected_forward_kernel(const SelectedProblem<bf16> p) {
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ UnionList list;
  constexpr bool kKeepQueries = kHeadDim <= 192;  // in registers
  constexpr int kSteps = kHeadDim / 16;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto kv_head = static_cast<std::int32_t>(blockIdx.y);
  const UnionRows rows(p, static_cast<std::int32_t>(blockIdx.x), kv_head, warp, lane);
  const UnionWalk<bf16> walk(p, rows, kv_head, lane);
  if (warp == 0) walk.begin(list);
  const std::uint32_t stages = shared_address(memory);
  const std::int64_t k_stride = static_cast<std::int64_t>(p.kv_heads) * p.head_dim;
  const std::int64_t v_stride = static_cast<std::int64_t>(p.kv_heads) * p.v_dim;
  const bf16* k = p.k + kv_head * p.head_dim;
  const bf16* v = p.v + kv_head * p.v_dim;
  const float scale = p.scale * kLog2E;

  std::uint32_t kept[kKeepQueries ? kSteps : 1][4];
  if constexpr (kKeepQueries) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      load_rows(kept[step], p.q, rows, p.head_dim, step, lane);
    }
  }
  float out[kValueDim / 8][4] = {};
  float most[2] = {kLowest, kLowest};
  float total[2] = {};

  for (;;) {
    __syncthreads();  // the last batch is read
    if (warp == 0) walk.fill(list);
    __syncthreads();
    if (list.count == 0) break;
    const UnionTiles tiles(list, p.select_block);
    const std::int32_t count = tiles.count();
    const auto load = [&](std::int32_t tile) {
      const std::uint32_t to = stages + tile % kStages * kStageBytes<kHeadDim, kValueDim>;
      tiles.load<kHeadDim>(to, k, k_stride, p.head_dim, p.tokens(), tile);
      tiles.load<kValueDim>(to + kTileKeys * kHeadDim * 2, v, v_stride, p.v_dim, p.tokens(), tile);
      commit_copies();
    };
    // The first turn only loads: the code of a load stands once, for the instruction cache.
#pragma unroll 1
    for (std::int32_t tile = -1; tile < count; ++tile) {
      if (tile >= 0) wait_copies<0>();
      __syncthreads();
      if (tile + 1 < count) load(tile + 1);
      if (tile < 0) continue;
      std::uint32_t seen[2];
      if (!tiles.visible(tile, rows, lane, seen)) continue;
      const std::uint32_t k_tile = stages + tile % kStages * kStageBytes<kHeadDim, kValueDim>;
      const std::uint32_t at_k = k_tile + lane_offset_columns<kHeadDim>(lane);
      const std::uint32_t at_v =
          k_tile + kTileKeys * kHeadDim * 2 + lane_offset_rows<kValueDim>(lane);

      float score[kTileKeys / 8][4] = {};
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        std::uint32_t a[4];
        if constexpr (!kKeepQueries) load_rows(a, p.q, rows, p.head_dim, step, lane);
#pragma unroll
        for (int j = 0; j < kTileKeys / 16; ++j) {
          std::uint32_t b[4];
          load_matrices(b, moved<kHeadDim>(at_k, j * 16, step * 2));
          if constexpr (kKeepQueries) {
            multiply_add(score[2 * j], kept[step], b[0], b[1]);
            multiply_add(score[2 * j + 1], kept[step], b[2], b[3]);
          } else {
            multiply_add(score[2 * j], a, b[0], b[1]);
            multiply_add(score[2 * j + 1], a, b[2], b[3]);
          }
        }
      }
      if (__any_sync(0xFFFFFFFFU, (seen[0] & seen[1]) != 0xFFFFU)) {
#pragma unroll
        for (int j = 0; j < kTileKeys / 8; ++j) {
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            if ((seen[c / 2] >> (2 * j + c % 2) & 1U) == 0) score[j][c] = -INFINITY;
          }
        }
      }
      float largest[2] = {kLowest, kLowest};
#pragma unroll
      for (int j = 0; j < kTileKeys / 8; ++j) {
        largest[0] = fmaxf(largest[0], fmaxf(score[j][0], score[j][1]));
        largest[1] = fmaxf(largest[1], fmaxf(score[j][2], score[j][3]));
      }
      float grown[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        largest[half] = fmaxf(largest[half], __shfl_xor_sync(0xFFFFFFFFU, largest[half], 1));
        largest[half] = fmaxf(largest[half], __shfl_xor_sync(0xFFFFFFFFU, largest[half], 2));
        grown[half] = fmaxf(most[half], largest[half] * scale);
      }
      if (__any_sync(0xFFFFFFFFU, grown[0] > most[0] || grown[1] > most[1])) {
        const float shrink[2] = {exp2_fast(most[0] - grown[0]), exp2_fast(most[1] - grown[1])};
#pragma unroll
        for (int j = 0; j < kValueDim / 8; ++j) {
#pragma unroll
          for (int c = 0; c < 4; ++c) out[j][c] *= shrink[c / 2];
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          total[half] *= shrink[half];
          most[half] = grown[half];
        }
      }
#pragma unroll
      for (int j = 0; j < kTileKeys / 8; ++j) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          score[j][c] = exp2_fast(fmaf(score[j][c], scale, -most[c / 2]));
          total[c / 2] += score[j][c];
        }
      }
#pragma unroll
      for (int step = 0; step < kTileKeys / 16; ++step) {
        std::uint32_t a[4];
        pack_a(a, score[2 * step], score[2 * step + 1]);
#pragma unroll
        for (int j = 0; j < kValueDim / 16; ++j) {
          std::uint32_t b[4];
          load_matrices_transposed(b, moved<kValueDim>(at_v, step * 16, j * 2));
          multiply_add(out[2 * j], a, b[0], b[1]);
          multiply_add(out[2 * j + 1], a, b[2], b[3]);
        }
      }
    }
  }

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    total[half] += __shfl_xor_sync(0xFFFFFFFFU, total[half], 1);
    total[half] += __shfl_xor_sync(0xFFFFFFFFU, total[half], 2);
    if (rows.token[half] < 0) continue;
    const float inverse = total[half] > 0.0F ? 1.0F / total[half] : 0.0F;
    bf16* to = p.out + rows.row[half] * p.v_dim;
#pragma unroll
    for (int j = 0; j < kValueDim / 8; ++j) {
      const int column = j * 8 + lane % 4 * 2;
      if (column >= p.v_dim) continue;
      *reinterpret_cast<std::uint32_t*>(to + column) =
          pack(out[j][2 * half] * inverse, out[j][2 * half + 1] * inverse);
    }
    if (lane % 4 == 0) {
      p.lse[rows.row[half]] =
          total[half] > 0.0F ? (most[half] + log2f(total[half])) * kLn2 : -INFINITY;
    }
  }
}

}  // namespace

void selected_forward_tensor(const SelectedProblem<bf16>& problem, cudaStream_t stream) {
  if (fits_selected_group(problem)) return selected_forward_group(problem, stream);
  const auto blocks =
      static_cast<unsigned>(UnionShape(problem.group).thread_blocks(problem.tokens()));
  if (blocks == 0) return;
  with_padded_dims(problem.head_dim, problem.v_dim, [&]<int kHeadDim, int kValueDim>() {
    const auto kernel = selected_forward_kernel<kHeadDim, kValueDim>;
    constexpr int kBytes = kStages * kStageBytes<kHeadDim, kValueDim>;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
    kernel<<<dim3(blocks, static_cast<unsigned>(problem.kv_heads)), kUnionThreads, kBytes,
             stream>>>(problem);
    check_launch("selected_forward_kernel");
  });
}

}  // namespace nsa::cuda
