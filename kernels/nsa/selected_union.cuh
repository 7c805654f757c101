#pragma once

// Query-major work on selected blocks: a block of kUnionWarps warps takes a few adjacent queries of
// one KV head and walks the union of the blocks they selected, so that each crosses to shared
// memory once. A warp owns 16 rows (query, head) and skips tiles that none of its queries selected.

#include "kernels/common/tensor_core.cuh"
#include "kernels/nsa/selected_problem.h"

namespace nsa::cuda {

constexpr int kUnionWarps = 4;
constexpr int kUnionThreads = kUnionWarps * 32;
/// Most queries of a thread block: four warps of 16 rows, one head a group.
constexpr int kUnionQueries = 64;
/// Blocks of the union that are listed at once. Times any select_block a multiple of kTileKeys, so
/// that only the last batch ends with a partial tile.
constexpr int kUnionBatch = 128;
/// No block begins here: the end of a list.
constexpr std::int32_t kNoBlock = 0x7FFFFFFF;

/// The 16 rows of each warp: as many whole groups as fit, or a part of one group.
struct UnionShape {
  std::int32_t queries;  ///< of a warp
  std::int32_t parts;    ///< warps that one query takes

  __host__ __device__ explicit UnionShape(std::int32_t group)
      : queries(group >= 16 ? 1 : 16 / group), parts((group + 15) / 16) {}
  /// Thread blocks that cover `tokens` queries.
  std::int64_t thread_blocks(std::int64_t tokens) const {
    const std::int64_t warps = (tokens + queries - 1) / queries * parts;
    return (warps + kUnionWarps - 1) / kUnionWarps;
  }
};

/// What one warp owns, and where this lane's two rows (lane / 4 and eight on) stand.
struct UnionRows {
  std::int32_t first_query;  ///< of the thread block: bit 0 of masks
  std::int32_t count;        ///< queries of the thread block, at most kUnionQueries
  std::int32_t query, last;  ///< first and last query of the warp
  std::uint64_t warp_mask;   ///< bits of its queries; 0: it has none
  std::int32_t token[2];     ///< of the lane's rows; -1: padding
  std::int64_t row[2];       ///< in arrays of one row per (token, head)

  template <class T>
  __device__ UnionRows(const SelectedProblem<T>& p, std::int32_t block, std::int32_t kv_head,
                       int warp, int lane) {
    const UnionShape shape(p.group);
    const std::int32_t first_unit = block * kUnionWarps;
    const std::int32_t unit = first_unit + warp;
    first_query = first_unit / shape.parts * shape.queries;
    const std::int32_t end = ((first_unit + kUnionWarps - 1) / shape.parts + 1) * shape.queries;
    count = min(end, p.tokens()) - first_query;
    query = unit / shape.parts * shape.queries;
    last = min(query + shape.queries, p.tokens()) - 1;
    warp_mask = 0;
    for (std::int32_t t = query; t <= last; ++t) warp_mask |= std::uint64_t{1} << (t - first_query);
    const std::int32_t width = shape.parts == 1 ? p.group : 16;  // rows of one query in the warp
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int32_t at = lane / 4 + 8 * half;
      const std::int32_t t = query + at / width;
      const std::int32_t head = unit % shape.parts * 16 + at % width;
      const bool real = at / width < shape.queries && t <= last && head < p.group;
      token[half] = real ? t : -1;
      row[half] = real ? p.row(t, kv_head, head) : 0;
    }
  }
  __device__ std::uint64_t bit(int half) const {
    return token[half] < 0 ? 0 : std::uint64_t{1} << (token[half] - first_query);
  }
};

/// A batch of the union, ascending: where blocks begin (tokens of the batch) and, bit by bit, which
/// queries of the thread block selected them. And where the walk through their lists stands.
struct UnionList {
  std::int32_t begin[kUnionBatch];
  std::uint64_t mask[kUnionBatch];
  std::int32_t count;
  std::int32_t origin[kUnionQueries];  ///< first token of a query's document
  std::int32_t cursor[kUnionQueries];  ///< next slot of a query's list
};

/// One warp merges the ascending lists of up to kUnionQueries queries; each lane reads two of them.
/// Nothing of it stays in registers between batches.
template <class T>
class UnionWalk {
 public:
  __device__ UnionWalk(const SelectedProblem<T>& p, const UnionRows& rows, std::int32_t kv_head,
                       int lane)
      : p_(p), rows_(rows), kv_head_(kv_head), lane_(lane) {}

  /// Before the first fill().
  __device__ void begin(UnionList& list) const {
    for (std::int32_t at = lane_; at < rows_.count; at += 32) {
      list.origin[at] = p_.documents.bounds[p_.documents.of_token[rows_.first_query + at]];
      list.cursor[at] = 0;
    }
    __syncwarp();
  }
  /// The next blocks of the union; count 0 at its end. The whole warp calls this.
  __device__ void fill(UnionList& list) const {
    const std::int32_t* slots[2];
    std::int32_t origin[2];
    std::int32_t cursor[2];  // of `next`
    std::int32_t head[2];
    std::int32_t next[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::int32_t at = lane_ + 32 * i;
      const bool mine = at < rows_.count;
      slots[i] =
          mine ? p_.blocks + p_.pair(rows_.first_query + at, kv_head_) * p_.top_n : p_.blocks;
      origin[i] = mine ? list.origin[at] : 0;
      cursor[i] = mine ? list.cursor[at] + 1 : p_.top_n;
      head[i] = mine ? read(slots[i], origin[i], cursor[i] - 1) : kNoBlock;
      next[i] = mine ? read(slots[i], origin[i], cursor[i]) : kNoBlock;
    }
    std::int32_t count = 0;
#pragma unroll 1
    for (; count < kUnionBatch; ++count) {
      const std::int32_t least = __reduce_min_sync(0xFFFFFFFFU, min(head[0], head[1]));
      if (least == kNoBlock) break;
      const std::uint32_t low = __ballot_sync(0xFFFFFFFFU, head[0] == least);
      const std::uint32_t high = __ballot_sync(0xFFFFFFFFU, head[1] == least);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (head[i] != least) continue;
        head[i] = next[i];
        next[i] = read(slots[i], origin[i], ++cursor[i]);
      }
      if (lane_ == 0) {
        list.begin[count] = least;
        list.mask[count] = static_cast<std::uint64_t>(high) << 32 | low;
      }
    }
    if (lane_ == 0) list.count = count;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::int32_t at = lane_ + 32 * i;
      if (at < rows_.count) list.cursor[at] = cursor[i] - 1;
    }
  }

 private:
  __device__ std::int32_t read(const std::int32_t* slots, std::int32_t origin,
                               std::int32_t slot) const {
    if (slot >= p_.top_n) return kNoBlock;
    const std::int32_t block = slots[slot];
    return block < 0 ? kNoBlock : origin + block * p_.select_block;
  }

  const SelectedProblem<T>& p_;
  const UnionRows& rows_;
  std::int32_t kv_head_;
  int lane_;
};

/// The keys of a batch side by side, kTileKeys to a tile, whatever the length of a block.
class UnionTiles {
 public:
  __device__ UnionTiles(const UnionList& list, std::int32_t select_block)
      : list_(&list),
        select_block_(select_block),
        keys_(list.count * select_block),
        aligned_(select_block % kTileKeys == 0) {}

  __device__ std::int32_t count() const { return (keys_ + kTileKeys - 1) / kTileKeys; }

  /// The token of a column of a tile, -1 past the end.
  __device__ std::int32_t key(std::int32_t tile, std::int32_t column) const {
    const std::int32_t at = tile * kTileKeys + column;
    if (at >= keys_) return -1;
    const std::int32_t entry = at / select_block_;
    return list_->begin[entry] + at - entry * select_block_;
  }

  /// Queues a tile of x [tokens, kv_heads, dim] to shared memory; zeros beyond it. `x` points at
  /// the KV head's first row, `stride` is kv_heads * dim.
  template <int kDim>
  __device__ __forceinline__ void load(std::uint32_t to, const bf16* x, std::int64_t stride,
                                       std::int32_t dim, std::int32_t tokens,
                                       std::int32_t tile) const {
    constexpr int kPieces = kDim / 8;
    if constexpr (kUnionThreads % kPieces == 0) {
      // A thread keeps its piece and steps from row to row.
      constexpr int kStep = kUnionThreads / kPieces;
      if (aligned_) {
        const int row = static_cast<int>(threadIdx.x) / kPieces;
        const int piece = static_cast<int>(threadIdx.x) % kPieces;
        const std::int32_t first = key(tile, 0);
        const std::int32_t rows = piece * 8 < dim ? tokens - first - row : 0;
        const bf16* from = x + (first + row) * stride + piece * 8;
#pragma unroll
        for (int i = 0; i < kTileKeys / kStep; ++i, from += kStep * stride) {
          const bool valid = i * kStep < rows;
          copy_async(to + tile_offset<kDim>(row + i * kStep, piece), valid ? from : x, valid);
        }
        return;
      }
    }
#pragma unroll 1
    for (int at = static_cast<int>(threadIdx.x); at < kTileKeys * kPieces; at += kUnionThreads) {
      const int column = at / kPieces;
      const int piece = at % kPieces;
      const std::int32_t token = key(tile, column);
      const bool valid = token >= 0 && token < tokens && piece * 8 < dim;
      copy_async(to + tile_offset<kDim>(column, piece), valid ? x + token * stride + piece * 8 : x,
                 valid);
    }
  }

  /// Which of the lane's 16 columns (8 j + 2 (lane % 4) + {0, 1} at bits 2 j + {0, 1}) its two rows
  /// see. False, for the whole warp, where no row sees any.
  __device__ bool visible(std::int32_t tile, const UnionRows& rows, int lane,
                          std::uint32_t (&seen)[2]) const {
    const std::int32_t first = tile * kTileKeys;
    if (aligned_) {
      const std::int32_t entry = first / select_block_;
      const std::uint64_t mask = list_->mask[entry];
      const std::int32_t begin = list_->begin[entry] + first - entry * select_block_;
      if ((mask & rows.warp_mask) == 0 || begin > rows.last) return false;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        // How many columns this row sees, then which of the lane's they are.
        const std::int32_t keys =
            (mask & rows.bit(half)) == 0 ? 0 : min(rows.token[half] + 1 - begin, kTileKeys);
        seen[half] = keys == kTileKeys ? 0xFFFFU : columns_below(keys, lane);
      }
      return true;
    }
    const std::int32_t end = min(first + kTileKeys, keys_);
    std::uint64_t any = 0;
    for (std::int32_t entry = first / select_block_; entry * select_block_ < end; ++entry) {
      any |= list_->mask[entry];
    }
    if ((any & rows.warp_mask) == 0) return false;
    seen[0] = seen[1] = 0;
#pragma unroll 1
    for (int bit = 0; bit < 16; ++bit) {
      const std::int32_t at = first + bit / 2 * 8 + lane % 4 * 2 + bit % 2;
      if (at >= end) break;
      const std::int32_t entry = at / select_block_;
      const std::int32_t token = list_->begin[entry] + at - entry * select_block_;
      const std::uint64_t mask = list_->mask[entry];
      for (int half = 0; half < 2; ++half) {
        if ((mask & rows.bit(half)) != 0 && token <= rows.token[half]) seen[half] |= 1U << bit;
      }
    }
    return true;
  }

 private:
  static __device__ std::uint32_t columns_below(std::int32_t keys, int lane) {
    std::uint32_t seen = 0;
#pragma unroll
    for (int bit = 0; bit < 16; ++bit) {
      if (bit / 2 * 8 + lane % 4 * 2 + bit % 2 < keys) seen |= 1U << bit;
    }
    return seen;
  }

  const UnionList* list_;
  std::int32_t select_block_;
  std::int32_t keys_;
  bool aligned_;
};

/// The A operands of a warp's rows of x [rows, dim], for one step of 16 columns, from device
/// memory; zeros for padding and beyond `dim`.
__device__ __forceinline__ void load_rows(std::uint32_t (&a)[4], const bf16* x,
                                          const UnionRows& rows, std::int32_t dim, int step,
                                          int lane) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int half = i % 2;
    const int column = step * 16 + i / 2 * 8 + lane % 4 * 2;
    const bool valid = rows.token[half] >= 0 && column < dim;
    a[i] = valid ? *reinterpret_cast<const std::uint32_t*>(x + rows.row[half] * dim + column) : 0U;
  }
}

}  // namespace nsa::cuda
