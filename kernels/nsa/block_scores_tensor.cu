// The score pass on tensor cores.

#include "kernels/common/check.h"
#include "kernels/common/tensor_core.cuh"
#include "kernels/nsa/block_scores.cuh"

namespace nsa::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kStages = 3;
/// Columns (query, head) of a warp: four tiles of eight.
constexpr int kColumns = 32;
static_assert(kScoreKeys == kTileKeys);

/// How the heads of a group lie in the columns of a warp: padded to a power of two, or above eight
/// to whole tiles, so that a query's columns are summed by shuffles alone.
struct ColumnShape {
  std::int32_t width;    ///< columns of one query
  std::int32_t queries;  ///< of a warp

  __host__ __device__ explicit ColumnShape(std::int32_t group)
      : width(group > 8   ? (group + 7) / 8 * 8
              : group > 4 ? 8
              : group > 2 ? 4
                          : group),
        queries(kColumns / width) {}
};

/// Shared memory of one block; floats after the tiles.
template <int kHeadDim>
struct Layout {
  static constexpr int kTileBytes = kTileKeys * kHeadDim * 2;
  static constexpr int kTilesBytes = kStages * kTileBytes;
  /// Of one warp: probabilities and carries of its queries.
  static std::int32_t warp_floats(const ColumnShape& shape) {
    return shape.queries * (kScoreStride + 2);
  }
};

/// A tile of compressed keys from row `first` of x, zeros from `rows` on.
template <int kHeadDim>
__device__ void load_keys(std::uint32_t to, const bf16* x, std::int64_t stride, std::int32_t dim,
                          std::int32_t rows) {
  constexpr int kPieces = kHeadDim / 8;
#pragma unroll
  for (int i = 0; i < kTileKeys * kPieces / kThreads; ++i) {
    const int at = static_cast<int>(threadIdx.x) + i * kThreads;
    const int row = at / kPieces;
    const int piece = at % kPieces;
    const bool valid = row < rows && piece * 8 < dim;
    copy_async(to + tile_offset<kHeadDim>(row, piece), valid ? x + row * stride + piece * 8 : x,
               valid);
  }
}

/// Sums p (scores of 16 keys by kColumns columns) over the columns of each query into
/// to[query * kScoreStride + key].
__device__ __forceinline__ void sum_heads(const float (&p)[4][4], std::int32_t width, float* to,
                                          int lane) {
  const int key = lane / 4;
  const int column = lane % 4;
  if (width == 16) {
    // The usual group, without branches: two queries of two tiles each.
#pragma unroll
    for (int query = 0; query < 2; ++query) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float sum = (p[2 * query][2 * half] + p[2 * query][2 * half + 1]) +
                    (p[2 * query + 1][2 * half] + p[2 * query + 1][2 * half + 1]);
        sum += __shfl_xor_sync(0xFFFFFFFFU, sum, 1);
        sum += __shfl_xor_sync(0xFFFFFFFFU, sum, 2);
        if (column == 0) to[query * kScoreStride + key + 8 * half] = sum;
      }
    }
    return;
  }
  if (width == 1) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        to[(8 * j + 2 * column + c % 2) * kScoreStride + key + c / 2 * 8] = p[j][c];
      }
    }
    return;
  }
  float sum[4][2];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    sum[j][0] = p[j][0] + p[j][1];
    sum[j][1] = p[j][2] + p[j][3];
  }
  // Tiles of one query first: then there are fewer values to shuffle.
  const int tiles = width <= 8 ? 1 : width / 8;
  if (tiles > 1) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (tiles == 2) {
        sum[0][half] += sum[1][half];
        sum[1][half] = sum[2][half] + sum[3][half];
      } else {
        sum[0][half] += sum[1][half] + sum[2][half] + (tiles == 4 ? sum[3][half] : 0.0F);
      }
    }
  }
  const int values = tiles == 1 ? 4 : tiles == 2 ? 2 : 1;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (j >= values) break;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (width >= 4) sum[j][half] += __shfl_xor_sync(0xFFFFFFFFU, sum[j][half], 1);
      if (width >= 8) sum[j][half] += __shfl_xor_sync(0xFFFFFFFFU, sum[j][half], 2);
    }
    if (width == 2) {
      to[(4 * j + column) * kScoreStride + key] = sum[j][0];
      to[(4 * j + column) * kScoreStride + key + 8] = sum[j][1];
    } else if (width == 4) {
      if (column % 2 == 0) {
        to[(2 * j + column / 2) * kScoreStride + key] = sum[j][0];
        to[(2 * j + column / 2) * kScoreStride + key + 8] = sum[j][1];
      }
    } else if (column == 0) {
      to[j * kScoreStride + key] = sum[j][0];
      to[j * kScoreStride + key + 8] = sum[j][1];
    }
  }
}

/// One block: kWarps warps of kColumns columns (query, head) of one KV head against the compressed
/// keys that they see, document by document. Reads q, k and lse; writes the importances of its
/// queries up to their current block. Scores are transposed, S^T = k q^T, so that the sum over the
/// heads of a group runs along a row; probabilities in fp32 from exp2 of score minus lse, never
/// rounded. Head dims up to the padded one, multiples of 8; groups up to kColumns.
template <int kHeadDim>
__global__ void __launch_bounds__(kThreads, kHeadDim <= 128 ? 2 : 1)
    score_blocks_kernel(const ScoreProblem<bf16> p, std::int32_t warp_floats) {
  using L = Layout<kHeadDim>;
  extern __shared__ __align__(128) unsigned char memory[];
  constexpr int kSteps = kHeadDim / 16;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const auto kv_head = static_cast<std::int32_t>(blockIdx.y);
  const ColumnShape shape(p.group);
  const ScoreRule rule(p.geometry);
  const float scale = p.scale * kLog2E;
  const std::uint32_t stages = shared_address(memory);
  float* probabilities = reinterpret_cast<float*>(memory + L::kTilesBytes) + warp * warp_floats;
  float* carry = probabilities + shape.queries * kScoreStride;

  const std::int32_t end = p.first + p.count;
  const std::int32_t block_first =
      p.first + static_cast<std::int32_t>(blockIdx.x) * kWarps * shape.queries;
  const std::int32_t block_end = min(block_first + kWarps * shape.queries, end);
  const std::int32_t base = block_first + warp * shape.queries;

  // The warp's queries as B operands, and lse over base 2 of the lane's columns.
  std::uint32_t q[kSteps][4][2];
  float lse[4][2];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const std::int32_t loaded = 8 * j + lane / 4;
    const std::int32_t token = base + loaded / shape.width;
    const std::int32_t head = loaded % shape.width;
    const bool real = loaded / shape.width < shape.queries && token < end && head < p.group;
    const std::int64_t row =
        (static_cast<std::int64_t>(token) * p.kv_heads + kv_head) * p.group + head;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int channel = step * 16 + half * 8 + lane % 4 * 2;
        q[step][j][half] =
            real && channel < p.head_dim
                ? *reinterpret_cast<const std::uint32_t*>(p.q + row * p.head_dim + channel)
                : 0U;
      }
    }
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const std::int32_t column = 8 * j + lane % 4 * 2 + c;
      const std::int32_t t = base + column / shape.width;
      const std::int32_t h = column % shape.width;
      const bool counts = column / shape.width < shape.queries && t < end && h < p.group;
      // Padding: exp2 gives 0.
      lse[j][c] =
          counts
              ? p.lse[(static_cast<std::int64_t>(t) * p.kv_heads + kv_head) * p.group + h] * kLog2E
              : INFINITY;
    }
  }

  const std::int32_t last_document = p.documents.of_token[block_end - 1];
  for (std::int32_t document = p.documents.of_token[block_first]; document <= last_document;
       ++document) {
    const std::int32_t origin = p.documents.bounds[document];
    const std::int32_t document_end = min(p.documents.bounds[document + 1], block_end);
    if (document_end <= max(origin, block_first)) continue;  // no row of it is here
    const std::int32_t row = p.documents.compressed_begin[document];
    const std::int32_t keys = p.geometry.visible_blocks(document_end - 1 - origin);
    const std::int32_t tiles = (keys + kTileKeys - 1) / kTileKeys;
    const std::int32_t first = max(base, origin);
    const std::int32_t own_end = min(base + shape.queries, document_end);
    const bool idle = first >= own_end;
    const std::int32_t own_keys = idle ? 0 : p.geometry.visible_blocks(own_end - 1 - origin);
    const std::int32_t own_tiles = (own_keys + kTileKeys - 1) / kTileKeys;
    // All its columns see the keys before this one; columns of other documents see none.
    const bool whole = first == base && own_end == min(base + shape.queries, end);
    const std::int32_t seen_by_all = whole ? p.geometry.visible_blocks(first - origin) : 0;
    ScoreRows rows;
    rows.count = idle ? 0 : own_end - first;
    rows.position = first - origin;
    rows.importance =
        p.importance +
        (static_cast<std::int64_t>(first - p.first) * p.kv_heads + kv_head) * p.stride;
    rows.stride = p.kv_heads * p.stride;
    rows.probabilities = probabilities + (first - base) * kScoreStride;
    rows.carry = carry;

    const std::int64_t stride = static_cast<std::int64_t>(p.kv_heads) * p.head_dim;
    const bf16* k = p.k + row * stride + kv_head * p.head_dim;
    const auto load = [&](std::int32_t tile) {
      if (tile < tiles) {
        load_keys<kHeadDim>(stages + tile % kStages * L::kTileBytes, k + tile * kTileKeys * stride,
                            stride, p.head_dim, keys - tile * kTileKeys);
      }
      commit_copies();
    };
    __syncthreads();  // the last document's tiles are read
#pragma unroll
    for (int tile = 0; tile < kStages - 1; ++tile) load(tile);
    for (std::int32_t tile = 0; tile < tiles; ++tile) {
      wait_copies<kStages - 2>();
      __syncthreads();
      load(tile + kStages - 1);
      if (tile >= own_tiles) continue;
      const std::uint32_t k_rows =
          stages + tile % kStages * L::kTileBytes + lane_offset_rows<kHeadDim>(lane);
      const bool masked = (tile + 1) * kTileKeys > seen_by_all;
#pragma unroll 1
      for (int part = 0; part < kTileKeys / 16; ++part) {
        float score[4][4] = {};
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          std::uint32_t a[4];
          load_matrices(a, moved<kHeadDim>(k_rows, part * 16, step * 2));
#pragma unroll
          for (int j = 0; j < 4; ++j) multiply_add(score[j], a, q[step][j][0], q[step][j][1]);
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            score[j][c] = exp2_fast(fmaf(score[j][c], scale, -lse[j][c % 2]));
          }
        }
        if (masked) {
          const std::int32_t key = tile * kTileKeys + part * 16 + lane / 4;
#pragma unroll
          for (int j = 0; j < 4; ++j) {
#pragma unroll
            for (int c = 0; c < 4; ++c) {
              const std::int32_t token = base + (8 * j + lane % 4 * 2 + c % 2) / shape.width;
              const bool seen = token >= first && token < own_end &&
                                key + c / 2 * 8 < p.geometry.visible_blocks(token - origin);
              if (!seen) score[j][c] = 0.0F;
            }
          }
        }
        sum_heads(score, shape.width, probabilities + part * 16, lane);
      }
      score_tile(rule, p.geometry, rows, tile * kTileKeys, lane);
    }
    wait_copies<0>();
    score_rest(rule, p.geometry, rows, own_tiles * kTileKeys, lane);
    __syncwarp();
  }
}

template <int kHeadDim>
void launch(const ScoreProblem<bf16>& problem, cudaStream_t stream) {
  const auto kernel = score_blocks_kernel<kHeadDim>;
  const ColumnShape shape(problem.group);
  const std::int32_t warp_floats = Layout<kHeadDim>::warp_floats(shape);
  const int bytes = Layout<kHeadDim>::kTilesBytes + kWarps * warp_floats * 4;
  const std::int32_t queries = kWarps * shape.queries;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  kernel<<<dim3(static_cast<unsigned>((problem.count + queries - 1) / queries),
                static_cast<unsigned>(problem.kv_heads)),
           kThreads, static_cast<std::size_t>(bytes), stream>>>(problem, warp_floats);
  check_launch("score_blocks_kernel");
}

}  // namespace

void score_blocks_tensor(const ScoreProblem<bf16>& problem, cudaStream_t stream) {
  if (problem.count == 0) return;
  if (problem.head_dim <= 64) return launch<64>(problem, stream);
  if (problem.head_dim <= 128) return launch<128>(problem, stream);
  if (problem.head_dim <= 192) return launch<192>(problem, stream);
  launch<256>(problem, stream);
}

}  // namespace nsa::cuda
