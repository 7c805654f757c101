// The gradient of the queries of selected attention, on tensor cores.

#include "kernels/common/check.h"
#include "kernels/nsa/selected_group.h"
#include "kernels/nsa/selected_kernels.h"
#include "kernels/nsa/selected_union.cuh"

namespace nsa::cuda {
namespace {

constexpr int kStages = 2;
/// Keys whose scores are in registers at once.
constexpr int kPartKeys = 32;

template <int kHeadDim, int kValueDim>
constexpr int kStageBytes = kTileKeys*(kHeadDim + kValueDim) * 2;

/// The statistics of a lane's two rows.
struct RowStatistics {
  float lse[2];  ///< over base 2
  float gate[2];
  float delta[2];

  __device__ RowStatistics(const SelectedProblem<bf16>& p, const UnionRows& rows) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool real = rows.token[half] >= 0;
      lse[half] = real ? p.lse[rows.row[half]] * kLog2E : 0.0F;
      gate[half] = real ? p.gates[rows.row[half] * 3] : 0.0F;
      delta[half] = real ? p.deltas[rows.row[half] * 3] : 0.0F;
    }
  }
};

/// score [16, kPartKeys] = the warp's rows of x times a part of a tile. `kept` holds the rows, or
/// they come from memory.
template <int kDim, bool kKeep>
__device__ __forceinline__ void multiply_tile(float (&score)[kPartKeys / 8][4],
                                              const std::uint32_t (*kept)[4], const bf16* x,
                                              const UnionRows& rows, std::int32_t dim,
                                              std::uint32_t tile, int first, int lane) {
#pragma unroll
  for (int step = 0; step < kDim / 16; ++step) {
    std::uint32_t a[4];
    if constexpr (kKeep) {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = kept[step][i];
    } else {
      load_rows(a, x, rows, dim, step, lane);
    }
#pragma unroll
    for (int j = 0; j < kPartKeys / 16; ++j) {
      std::uint32_t b[4];
      load_matrices(b, moved<kDim>(tile, first + j * 16, step * 2));
      multiply_add(score[2 * j], a, b[0], b[1]);
      multiply_add(score[2 * j + 1], a, b[2], b[3]);
    }
  }
}

/// One block: kUnionWarps warps of 16 rows (query, head) of one KV head against the union of the
/// blocks that their queries selected. Reads q, k, v, dout, lse, gates, deltas, blocks; writes dq,
/// every row by one warp, or adds to it. Probabilities again from lse; dS = p (g dP - delta) in
/// fp32, rounded to bf16 before it meets k. Head dims up to the padded ones, multiples of 8.
template <int kHeadDim, int kValueDim>
__global__ void __launch_bounds__(kUnionThreads, kHeadDim <= 128 ? 2 : 1)
    selected_dq_kernel(const SelectedProblem<bf16> p) {
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ UnionList list;
  constexpr bool kKeep = kHeadDim <= 128;  // q and dout in registers
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
  const RowStatistics statistics(p, rows);

  std::uint32_t kept_q[kKeep ? kHeadDim / 16 : 1][4];
  std::uint32_t kept_dout[kKeep ? kValueDim / 16 : 1][4];
  if constexpr (kKeep) {
#pragma unroll
    for (int step = 0; step < kHeadDim / 16; ++step) {
      load_rows(kept_q[step], p.q, rows, p.head_dim, step, lane);
    }
#pragma unroll
    for (int step = 0; step < kValueDim / 16; ++step) {
      load_rows(kept_dout[step], p.dout, rows, p.v_dim, step, lane);
    }
  }
  float dq[kHeadDim / 8][4] = {};

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
      const std::uint32_t k_columns = k_tile + lane_offset_columns<kHeadDim>(lane);
      const std::uint32_t k_rows = k_tile + lane_offset_rows<kHeadDim>(lane);
      const std::uint32_t v_columns =
          k_tile + kTileKeys * kHeadDim * 2 + lane_offset_columns<kValueDim>(lane);
#pragma unroll
      for (int part = 0; part < kTileKeys / kPartKeys; ++part) {
        float score[kPartKeys / 8][4] = {};
        float dp[kPartKeys / 8][4] = {};
        multiply_tile<kHeadDim, kKeep>(score, kept_q, p.q, rows, p.head_dim, k_columns,
                                       part * kPartKeys, lane);
        multiply_tile<kValueDim, kKeep>(dp, kept_dout, p.dout, rows, p.v_dim, v_columns,
                                        part * kPartKeys, lane);
#pragma unroll
        for (int j = 0; j < kPartKeys / 8; ++j) {
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            const int half = c / 2;
            const int bit = (part * kPartKeys / 8 + j) * 2 + c % 2;
            const float probability = exp2_fast(fmaf(score[j][c], scale, -statistics.lse[half]));
            const float ds =
                probability * fmaf(statistics.gate[half], dp[j][c], -statistics.delta[half]);
            score[j][c] = (seen[half] >> bit & 1U) != 0 ? ds : 0.0F;
          }
        }
#pragma unroll
        for (int step = 0; step < kPartKeys / 16; ++step) {
          std::uint32_t a[4];
          pack_a(a, score[2 * step], score[2 * step + 1]);
#pragma unroll
          for (int j = 0; j < kHeadDim / 16; ++j) {
            std::uint32_t b[4];
            load_matrices_transposed(b,
                                     moved<kHeadDim>(k_rows, part * kPartKeys + step * 16, j * 2));
            multiply_add(dq[2 * j], a, b[0], b[1]);
            multiply_add(dq[2 * j + 1], a, b[2], b[3]);
          }
        }
      }
    }
  }

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (rows.token[half] < 0) continue;
    bf16* to = p.dq + rows.row[half] * p.head_dim;
#pragma unroll
    for (int j = 0; j < kHeadDim / 8; ++j) {
      const int column = j * 8 + lane % 4 * 2;
      if (column >= p.head_dim) continue;
      auto* pair = reinterpret_cast<std::uint32_t*>(to + column);
      const float2 before = p.accumulate_dq ? unpack(*pair) : make_float2(0.0F, 0.0F);
      *pair = pack(fmaf(dq[j][2 * half], p.scale, before.x),
                   fmaf(dq[j][2 * half + 1], p.scale, before.y));
    }
  }
}

}  // namespace

void selected_dq_tensor(const SelectedProblem<bf16>& problem, cudaStream_t stream) {
  if (fits_selected_group(problem)) return selected_dq_group(problem, stream);
  const auto blocks =
      static_cast<unsigned>(UnionShape(problem.group).thread_blocks(problem.tokens()));
  if (blocks == 0) return;
  with_padded_dims(problem.head_dim, problem.v_dim, [&]<int kHeadDim, int kValueDim>() {
    const auto kernel = selected_dq_kernel<kHeadDim, kValueDim>;
    constexpr int kBytes = kStages * kStageBytes<kHeadDim, kValueDim>;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
    kernel<<<dim3(blocks, static_cast<unsigned>(problem.kv_heads)), kUnionThreads, kBytes,
             stream>>>(problem);
    check_launch("selected_dq_kernel");
  });
}

}  // namespace nsa::cuda
