#pragma once

// Tiles of rows in shared memory, in and out, for the tensor-core kernels of range attention.

#include "kernels/attention/range_problem.cuh"
#include "kernels/common/tensor_core.cuh"

namespace nsa::cuda {

/// Lower than any score: a maximum before the first key. Finite, so that differences are.
constexpr float kNoScore = -1e30F;

template <int kRows, int kDim>
constexpr int kTileBytes = kRows* kDim * 2;

/// Eight elements of a row whose length is no multiple of eight, zeros beyond it.
__device__ __forceinline__ uint4 gather_piece(const bf16* row, std::int32_t dim, int column) {
  std::uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float low = column + 2 * i < dim ? to_float(row[column + 2 * i]) : 0.0F;
    const float high = column + 2 * i + 1 < dim ? to_float(row[column + 2 * i + 1]) : 0.0F;
    words[i] = pack(low, high);
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

__device__ __forceinline__ void store_shared(std::uint32_t to, uint4 value) {
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(value.x), "r"(value.y),
               "r"(value.z), "r"(value.w)
               : "memory");
}

/// Queues a tile of rows of x [any, dim] to shared memory, zeros beyond dim. row_of(i) gives the
/// row of x that becomes row i of the tile, negative: zeros.
template <int kRows, int kDim, int kThreads, class RowOf>
__device__ __forceinline__ void load_tile(std::uint32_t to, const bf16* x, std::int32_t dim,
                                          RowOf&& row_of) {
  constexpr int kPieces = kDim / 8;
  static_assert(kRows * kPieces % kThreads == 0);
  const bool whole_pieces = dim % 8 == 0;
#pragma unroll
  for (int i = 0; i < kRows * kPieces / kThreads; ++i) {
    const int at = static_cast<int>(threadIdx.x) + i * kThreads;
    const int row = at / kPieces;
    const int piece = at % kPieces;
    const std::int64_t from = row_of(row);
    const bool valid = from >= 0 && piece * 8 < dim;
    const std::uint32_t place = to + tile_offset<kDim>(row, piece);
    if (whole_pieces) {
      copy_async(place, valid ? x + from * dim + piece * 8 : x, valid);
    } else {
      store_shared(place,
                   valid ? gather_piece(x + from * dim, dim, piece * 8) : make_uint4(0, 0, 0, 0));
    }
  }
}

/// Four words of each of four neighbouring lanes: word i of lane q becomes word q of lane i.
__device__ __forceinline__ void transpose_quad(std::uint32_t (&v)[4], int lane) {
#pragma unroll
  for (int step = 1; step <= 2; ++step) {
    const bool upper = (lane & step) != 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int low = step == 1 ? 2 * i : i;
      const int high = low + step;
      const std::uint32_t other =
          __shfl_xor_sync(0xFFFFFFFFU, upper ? v[low] : v[high], static_cast<unsigned>(step));
      if (upper) {
        v[low] = other;
      } else {
        v[high] = other;
      }
    }
  }
}

/// What a warp holds of 16 rows (sums of a product), times `factor`, to device memory, half 0 or 1:
/// `row` is that of the lane (lane / 4 + 8 half), null: not stored. Added to what is there if
/// `add`. By the whole warp.
template <int kDim>
__device__ __forceinline__ void store_sums(bf16* row, std::int32_t dim,
                                           const float (&sum)[kDim / 8][4], int half, float factor,
                                           int lane, bool add = false) {
  if (dim % 8 != 0) {
    if (row == nullptr) return;
#pragma unroll
    for (int j = 0; j < kDim / 8; ++j) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int column = j * 8 + lane % 4 * 2 + c;
        if (column >= dim) continue;
        const float old = add ? to_float(row[column]) : 0.0F;
        row[column] = from_float<bf16>(fmaf(sum[j][2 * half + c], factor, old));
      }
    }
    return;
  }
#pragma unroll
  for (int j = 0; j < kDim / 8; j += 4) {
    // A lane moves the sixteen bytes of the tile of 8 columns that has its number.
    const int column = j * 8 + lane % 4 * 8;
    uint4* to = row == nullptr || column >= dim ? nullptr : reinterpret_cast<uint4*>(row + column);
    std::uint32_t words[4] = {};
    if (add) {
      if (to != nullptr) {
        const uint4 old = *to;
        words[0] = old.x;
        words[1] = old.y;
        words[2] = old.z;
        words[3] = old.w;
      }
      transpose_quad(words, lane);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 old = unpack(words[i]);
      words[i] = pack(fmaf(sum[j + i][2 * half], factor, old.x),
                      fmaf(sum[j + i][2 * half + 1], factor, old.y));
    }
    transpose_quad(words, lane);
    if (to != nullptr) *to = make_uint4(words[0], words[1], words[2], words[3]);
  }
}

/// sum [16 kTiles, kCount] += a b', both row-major tiles in shared memory: `a` at the lane's
/// address of its first row (lane_offset_rows), `b` at that of its first row (lane_offset_columns).
template <int kTiles, int kCount, int kDim>
__device__ __forceinline__ void multiply_rows(float (&sum)[kTiles][kCount / 8][4], std::uint32_t a,
                                              std::uint32_t b) {
#pragma unroll
  for (int step = 0; step < kDim / 16; ++step) {
    std::uint32_t left[kTiles][4];
#pragma unroll
    for (int i = 0; i < kTiles; ++i) load_matrices(left[i], moved<kDim>(a, i * 16, step * 2));
#pragma unroll
    for (int j = 0; j < kCount / 16; ++j) {
      std::uint32_t right[4];
      load_matrices(right, moved<kDim>(b, j * 16, step * 2));
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        multiply_add(sum[i][2 * j], left[i], right[0], right[1]);
        multiply_add(sum[i][2 * j + 1], left[i], right[2], right[3]);
      }
    }
  }
}

/// sum [16 kTiles, kDim] += a b: `a` [16 kTiles, kCount] in registers, as the sums of another
/// product, rounded to bf16; `b` [kCount, kDim] at the lane's address (lane_offset_rows).
template <int kTiles, int kCount, int kDim>
__device__ __forceinline__ void multiply_kept(float (&sum)[kTiles][kDim / 8][4],
                                              const float (&a)[kTiles][kCount / 8][4],
                                              std::uint32_t b) {
#pragma unroll
  for (int step = 0; step < kCount / 16; ++step) {
    std::uint32_t left[kTiles][4];
#pragma unroll
    for (int i = 0; i < kTiles; ++i) pack_a(left[i], a[i][2 * step], a[i][2 * step + 1]);
#pragma unroll
    for (int j = 0; j < kDim / 16; ++j) {
      std::uint32_t right[4];
      load_matrices_transposed(right, moved<kDim>(b, step * 16, j * 2));
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        multiply_add(sum[i][2 * j], left[i], right[0], right[1]);
        multiply_add(sum[i][2 * j + 1], left[i], right[2], right[3]);
      }
    }
  }
}

/// What a tile of query rows sees: [begin, end) by any of its rows, [all_begin, all_end) by every
/// one.
struct TileKeys {
  std::int32_t begin, end, all_begin, all_end;

  /// From the keys of its first row and of its last.
  __device__ TileKeys(int2 first, int2 last)
      : begin(first.x), end(last.y), all_begin(last.x), all_end(first.y) {}
  __device__ TileKeys(const RangeRule& rule, std::int32_t first_token, std::int32_t last_token)
      : TileKeys(rule.keys_of(first_token), rule.keys_of(last_token)) {}
  /// Whether some row does not see one of keys [from, to).
  __device__ bool cut(std::int32_t from, std::int32_t to) const {
    return from < all_begin || to > all_end;
  }
};

}  // namespace nsa::cuda
