// The gradients of keys and values of selected attention, on tensor cores.

#include <algorithm>

#include "kernels/common/check.h"
#include "kernels/common/tensor_core.cuh"
#include "kernels/nsa/selected_dkdv.h"

namespace nsa::cuda {
namespace {

constexpr int kStages = 2;
/// Gathered rows whose scores are in registers at once.
constexpr int kPartRows = 32;

/// Which gradients one launch makes: both where their sums fit in the registers.
enum class Part : int { kBoth, kKeys, kValues };

/// Shared memory of one block. Tiles first, all aligned to 128 bytes.
template <int kHeadDim, int kValueDim>
struct Layout {
  static constexpr int kRows = kHeadDim <= 128 ? 64 : 32;  ///< gathered rows of a stage
  static constexpr int kKeyBytes = kTileKeys * kHeadDim * 2;
  static constexpr int kValueBytes = kTileKeys * kValueDim * 2;
  static constexpr int kQueryBytes = kRows * kHeadDim * 2;
  static constexpr int kDoutBytes = kRows * kValueDim * 2;
  static constexpr int kStatisticBytes = 4 * kRows * 4;  ///< lse, gate, delta, token of a row
  static constexpr int kStageBytes = kQueryBytes + kDoutBytes + kStatisticBytes;
  static constexpr int kBytes = kKeyBytes + kValueBytes + kStages * kStageBytes;
};

/// A part of a block's list and the keys that a thread block takes.
struct Work {
  std::int32_t key;   ///< first token
  std::int32_t keys;  ///< at most kTileKeys
  std::int32_t kv_head;
  const std::int32_t* queries;
  std::int32_t rows;  ///< queries times group
  std::int32_t slot;  ///< -1: sums are the gradients
};

__device__ Work find_work(const BlockLists& lists, const SelectedProblem<bf16>& p,
                          const ListPart& part, std::int32_t key_tile) {
  const auto id = static_cast<std::int32_t>(part.list % lists.ids);
  Work work;
  work.key = lists.block_begin[id] + key_tile * kTileKeys;
  work.keys = min(lists.block_end[id] - work.key, kTileKeys);
  work.kv_head = static_cast<std::int32_t>(part.list / lists.ids);
  work.queries = lists.queries + part.begin;
  work.rows = (part.end - part.begin) * p.group;
  work.slot = part.slot;
  return work;
}

/// x / d for x below 2^32 / d, d above 1, by a multiplication.
struct Divider {
  std::uint32_t divisor, inverse;

  explicit Divider(std::int32_t by)
      : divisor(static_cast<std::uint32_t>(by)),
        inverse(by == 1
                    ? 0
                    : static_cast<std::uint32_t>(((std::uint64_t{1} << 32) - 1) / divisor + 1)) {}
  __device__ std::int32_t quotient(std::int32_t x) const {
    return divisor == 1
               ? x
               : static_cast<std::int32_t>(__umulhi(static_cast<std::uint32_t>(x), inverse));
  }
};

/// Copies a tile of keys or values, zeros beyond `rows` and `dim`.
template <int kDim>
__device__ void load_tile(std::uint32_t to, const bf16* x, std::int64_t stride, std::int32_t dim,
                          std::int32_t rows) {
  constexpr int kPieces = kDim / 8;
  for (int at = static_cast<int>(threadIdx.x); at < kTileKeys * kPieces;
       at += static_cast<int>(blockDim.x)) {
    const int row = at / kPieces;
    const int piece = at % kPieces;
    const bool valid = row < rows && piece * 8 < dim;
    copy_async(to + tile_offset<kDim>(row, piece), valid ? x + row * stride + piece * 8 : x, valid);
  }
}

/// Gathers rows [first, first + kRows) of the part from x [tokens, heads, dim].
template <int kDim, int kRows>
__device__ void gather_rows(std::uint32_t to, const bf16* x, const SelectedProblem<bf16>& p,
                            const Work& work, const Divider& group, std::int32_t dim,
                            std::int32_t first) {
  constexpr int kPieces = kDim / 8;
#pragma unroll 4
  for (int at = static_cast<int>(threadIdx.x); at < kRows * kPieces;
       at += static_cast<int>(blockDim.x)) {
    const int row = at / kPieces;
    const int piece = at % kPieces;
    const std::int32_t position = first + row;
    const bool valid = position < work.rows && piece * 8 < dim;
    const bf16* from = x;
    if (valid) {
      const std::int32_t query = group.quotient(position);
      from +=
          p.row(work.queries[query], work.kv_head, position - query * p.group) * dim + piece * 8;
    }
    copy_async(to + tile_offset<kDim>(row, piece), from, valid);
  }
}

/// lse, gate, delta and token of the gathered rows; token -1 beyond the part.
template <int kRows>
__device__ void gather_statistics(float* to, const SelectedProblem<bf16>& p, const Work& work,
                                  const Divider& group, std::int32_t first) {
  for (int row = static_cast<int>(threadIdx.x); row < kRows; row += static_cast<int>(blockDim.x)) {
    const std::int32_t position = first + row;
    const bool valid = position < work.rows;
    std::int32_t token = -1;
    std::int64_t at = 0;
    if (valid) {
      const std::int32_t query = group.quotient(position);
      token = work.queries[query];
      at = p.row(token, work.kv_head, position - query * p.group);
    }
    copy_async_word(shared_address(to + row), p.lse + at, valid);
    copy_async_word(shared_address(to + kRows + row), p.gates + at * 3, valid);
    copy_async_word(shared_address(to + 2 * kRows + row), p.deltas + at * 3, valid);
    reinterpret_cast<std::int32_t*>(to)[3 * kRows + row] = token;
  }
}

/// sums [16, kPartRows] = the warp's 16 keys (rows of `keys`) times gathered rows.
template <int kDim>
__device__ __forceinline__ void multiply_rows(float (&sums)[kPartRows / 8][4], std::uint32_t keys,
                                              std::uint32_t rows, int first) {
#pragma unroll
  for (int step = 0; step < kDim / 16; ++step) {
    std::uint32_t a[4];
    load_matrices(a, moved<kDim>(keys, 0, step * 2));
#pragma unroll
    for (int j = 0; j < kPartRows / 16; ++j) {
      std::uint32_t b[4];
      load_matrices(b, moved<kDim>(rows, first + j * 16, step * 2));
      multiply_add(sums[2 * j], a, b[0], b[1]);
      multiply_add(sums[2 * j + 1], a, b[2], b[3]);
    }
  }
}

/// total [16, kDim] += weights [16, kPartRows] times gathered rows.
template <int kDim>
__device__ __forceinline__ void add_rows(float (&total)[kDim / 8][4],
                                         const float (&weights)[kPartRows / 8][4],
                                         std::uint32_t rows, int first) {
#pragma unroll
  for (int step = 0; step < kPartRows / 16; ++step) {
    std::uint32_t a[4];
    pack_a(a, weights[2 * step], weights[2 * step + 1]);
#pragma unroll
    for (int j = 0; j < kDim / 16; ++j) {
      std::uint32_t b[4];
      load_matrices_transposed(b, moved<kDim>(rows, first + step * 16, j * 2));
      multiply_add(total[2 * j], a, b[0], b[1]);
      multiply_add(total[2 * j + 1], a, b[2], b[3]);
    }
  }
}

/// Writes the warp's rows of a gradient, or of a slot [kTileKeys, width].
template <int kDim>
__device__ void write_rows(const float (&total)[kDim / 8][4], float scale, const Work& work,
                           bf16* gradient, std::int64_t stride, std::int32_t dim, float* slot,
                           std::int32_t width, int warp, int lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int key = warp * 16 + lane / 4 + 8 * half;
    if (key >= work.keys) continue;
#pragma unroll
    for (int j = 0; j < kDim / 8; ++j) {
      const int column = j * 8 + lane % 4 * 2;
      if (column >= dim) continue;
      const float left = total[j][2 * half] * scale;
      const float right = total[j][2 * half + 1] * scale;
      if (slot == nullptr) {
        *reinterpret_cast<std::uint32_t*>(gradient + key * stride + column) = pack(left, right);
      } else {
        *reinterpret_cast<float2*>(slot + static_cast<std::int64_t>(key) * width + column) =
            make_float2(left, right);
      }
    }
  }
}

/// One block: up to kTileKeys keys of one block of one KV head, 16 a warp, against a part of the
/// queries that selected it, gathered kRows rows (query, head) at a time. Reads q, k, v, dout, lse,
/// gates, deltas and the lists; writes dk and dv where the part is the whole list, else a slot of
/// `partials`. Scores are transposed, S^T = k q^T, so that p and dS are A operands as they come;
/// fp32 sums over the whole part in query order; p g and dS rounded to bf16. Head dims up to
/// the padded ones, multiples of 8.
template <int kHeadDim, int kValueDim, Part kPart>
__global__ void __launch_bounds__(128, kHeadDim <= 128 ? 2 : 1)
    selected_dkdv_kernel(const SelectedProblem<bf16> p, const BlockLists lists, float* partials,
                         std::int32_t key_tiles, const Divider group) {
  using L = Layout<kHeadDim, kValueDim>;
  extern __shared__ __align__(128) unsigned char memory[];
  constexpr bool kKeys = kPart != Part::kValues;
  constexpr bool kValues = kPart != Part::kKeys;
  const ListPart part = lists.parts[blockIdx.x / static_cast<unsigned>(key_tiles)];
  if (part.list < 0) return;
  const auto key_tile = static_cast<std::int32_t>(blockIdx.x % static_cast<unsigned>(key_tiles));
  const Work work = find_work(lists, p, part, key_tile);
  if (work.keys <= 0) return;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::uint32_t tiles = shared_address(memory);
  const std::int64_t k_stride = static_cast<std::int64_t>(p.kv_heads) * p.head_dim;
  const std::int64_t v_stride = static_cast<std::int64_t>(p.kv_heads) * p.v_dim;
  const std::int64_t k_row = work.key * k_stride + work.kv_head * p.head_dim;
  const std::int64_t v_row = work.key * v_stride + work.kv_head * p.v_dim;
  const float scale = p.scale * kLog2E;

  load_tile<kHeadDim>(tiles, p.k + k_row, k_stride, p.head_dim, work.keys);
  load_tile<kValueDim>(tiles + L::kKeyBytes, p.v + v_row, v_stride, p.v_dim, work.keys);
  const auto load = [&](std::int32_t step) {
    const int offset = L::kKeyBytes + L::kValueBytes + step % kStages * L::kStageBytes;
    const std::int32_t first = step * L::kRows;
    gather_rows<kHeadDim, L::kRows>(tiles + offset, p.q, p, work, group, p.head_dim, first);
    gather_rows<kValueDim, L::kRows>(tiles + offset + L::kQueryBytes, p.dout, p, work, group,
                                     p.v_dim, first);
    gather_statistics<L::kRows>(
        reinterpret_cast<float*>(memory + offset + L::kQueryBytes + L::kDoutBytes), p, work, group,
        first);
    commit_copies();
  };
  const std::int32_t steps = (work.rows + L::kRows - 1) / L::kRows;
  load(0);

  float dk[kKeys ? kHeadDim / 8 : 1][4] = {};
  float dv[kValues ? kValueDim / 8 : 1][4] = {};
  const std::uint32_t own_keys =
      tiles + warp * 16 * kHeadDim * 2 + lane_offset_rows<kHeadDim>(lane);
  const std::uint32_t own_values =
      tiles + L::kKeyBytes + warp * 16 * kValueDim * 2 + lane_offset_rows<kValueDim>(lane);

  for (std::int32_t step = 0; step < steps; ++step) {
    wait_copies<0>();
    __syncthreads();
    if (step + 1 < steps) load(step + 1);
    const int offset = L::kKeyBytes + L::kValueBytes + step % kStages * L::kStageBytes;
    const std::uint32_t q_tile = tiles + offset;
    const std::uint32_t dout_tile = q_tile + L::kQueryBytes;
    const auto* lse =
        reinterpret_cast<const float*>(memory + offset + L::kQueryBytes + L::kDoutBytes);
    const float* gate = lse + L::kRows;
    const float* delta = gate + L::kRows;
    const auto* token = reinterpret_cast<const std::int32_t*>(delta + L::kRows);
    // Queries ascend: where the first is past all keys, only padding is left to mask.
    const bool masked =
        token[0] < work.key + kTileKeys - 1 || work.rows - step * L::kRows < L::kRows;
#pragma unroll 1
    for (int first = 0; first < L::kRows; first += kPartRows) {
      float score[kPartRows / 8][4] = {};
      float dp[kPartRows / 8][4] = {};
      multiply_rows<kHeadDim>(score, own_keys, q_tile + lane_offset_columns<kHeadDim>(lane), first);
      if constexpr (kKeys) {
        multiply_rows<kValueDim>(dp, own_values, dout_tile + lane_offset_columns<kValueDim>(lane),
                                 first);
      }
#pragma unroll
      for (int j = 0; j < kPartRows / 8; ++j) {
        const int column = first + j * 8 + lane % 4 * 2;
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int row = column + c % 2;
          float probability = exp2_fast(fmaf(score[j][c], scale, -lse[row] * kLog2E));
          if (masked && work.key + warp * 16 + lane / 4 + c / 2 * 8 > token[row]) {
            probability = 0.0F;
          }
          score[j][c] = probability * gate[row];
          dp[j][c] = probability * fmaf(gate[row], dp[j][c], -delta[row]);
        }
      }
      if constexpr (kValues) {
        add_rows<kValueDim>(dv, score, dout_tile + lane_offset_rows<kValueDim>(lane), first);
      }
      if constexpr (kKeys) {
        add_rows<kHeadDim>(dk, dp, q_tile + lane_offset_rows<kHeadDim>(lane), first);
      }
    }
  }

  wait_copies<0>();
  const std::int32_t width = p.head_dim + p.v_dim;
  float* slot = nullptr;
  if (work.slot >= 0) {
    slot = partials +
           (static_cast<std::int64_t>(work.slot) * key_tiles + key_tile) * kTileKeys * width;
  }
  if constexpr (kKeys) {
    write_rows<kHeadDim>(dk, p.scale, work, p.dk + k_row, k_stride, p.head_dim, slot, width, warp,
                         lane);
  }
  if constexpr (kValues) {
    write_rows<kValueDim>(dv, 1.0F, work, p.dv + v_row, v_stride, p.v_dim,
                          slot == nullptr ? nullptr : slot + p.head_dim, width, warp, lane);
  }
}

template <int kHeadDim, int kValueDim, Part kPart>
void launch(const SelectedProblem<bf16>& problem, const BlockLists& lists, float* partials,
            cudaStream_t stream) {
  const auto kernel = selected_dkdv_kernel<kHeadDim, kValueDim, kPart>;
  constexpr int kBytes = Layout<kHeadDim, kValueDim>::kBytes;
  const std::int32_t key_tiles = key_tiles_of(problem);
  const int warps = std::min(kTileKeys, problem.select_block + 15) / 16;  // 16 keys each
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  kernel<<<static_cast<unsigned>(lists.most_parts * key_tiles), static_cast<unsigned>(warps * 32),
           kBytes, stream>>>(problem, lists, partials, key_tiles, Divider(problem.group));
  check_launch("selected_dkdv_kernel");
}

}  // namespace

void selected_dkdv_tensor(const SelectedProblem<bf16>& problem, const BlockLists& lists,
                          float* partials, cudaStream_t stream) {
  with_padded_dims(problem.head_dim, problem.v_dim, [&]<int kHeadDim, int kValueDim>() {
    if constexpr (kHeadDim <= 128) {
      launch<kHeadDim, kValueDim, Part::kBoth>(problem, lists, partials, stream);
    } else {
      launch<kHeadDim, kValueDim, Part::kKeys>(problem, lists, partials, stream);
      launch<kHeadDim, kValueDim, Part::kValues>(problem, lists, partials, stream);
    }
  });
}

}  // namespace nsa::cuda
