#pragma once

// What the forward and the backward of selected attention share: the keys of one query, as a few
// blocks, and the matrix products of its group of heads with them. A group has few rows, so keys
// and values are also kept block by block transposed: products without a transposed operand are the
// ones that a matrix library does fast without copying its operands first.

#include <cstdint>

#include "core/tensor.h"
#include "ops/cpu/attention_core.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/key_columns.h"

namespace nsa::cpu {

/// Queries in one piece of parallel work.
constexpr std::int64_t kPieceQueries = 32;

/// The selected blocks of one query, with the keys that it sees in all of them together. Only the
/// last block may be seen in part, so key i of slot s is column s * select_block + i of the scores.
struct SelectedSlots {
  const std::int32_t* blocks = nullptr;
  std::int64_t count = 0;
  std::int64_t keys = 0;
};

template <class T>
struct SelectedAttention {
  Attention<T> attention;
  const std::int32_t* blocks = nullptr;  ///< [tokens, kv_heads, top_n]
  KeyColumns<T> k_columns;               ///< blocks of select_block keys
  KeyColumns<T> v_columns;               ///< likewise; only for the backward

  SelectedAttention(const Attention<T>& a, const Tensor& selected)
      : attention(a), blocks(selected.as<std::int32_t>()) {}

  std::int64_t select_block() const { return attention.rule.geometry.select_block; }
  std::int64_t top_n() const { return attention.rule.geometry.top_n; }
  /// Stride of the scores of a query. The padding keeps rows from falling on the same cache lines.
  std::int64_t score_stride() const { return top_n() * select_block() + kPadding; }

  SelectedSlots slots(const QueryTile& tile, std::int64_t t) const {
    const std::int64_t at = (tile.token + t) * attention.kv_heads + tile.kv_head;
    SelectedSlots found{.blocks = blocks + at * top_n()};
    while (found.count < top_n() && found.blocks[found.count] >= 0) {
      const std::int64_t begin = found.blocks[found.count++] * select_block();
      found.keys += std::min(select_block(), t + 1 - begin);
    }
    return found;
  }

  /// scores [group, score_stride] = alpha * rows [group, dim] * the transposed blocks of the slots.
  void multiply_blocks(const QueryTile& tile, const SelectedSlots& slots,
                       const KeyColumns<T>& columns, RowBlock<const T> rows, T alpha,
                       T* scores) const {
    const std::int64_t dim = rows.stride;
    std::int64_t left = slots.keys;
    for (std::int64_t slot = 0; slot < slots.count; ++slot, left -= select_block()) {
      const RowBlock<const T> b = columns.block(tile, slots.blocks[slot]);
      gemm(Gemm<T>{.m = attention.group(),
                   .n = std::min(select_block(), left),
                   .k = dim,
                   .alpha = alpha,
                   .a = rows.data,
                   .lda = dim,
                   .b = b.data,
                   .ldb = b.stride,
                   .c = scores + slot * select_block(),
                   .ldc = score_stride()});
    }
  }

  /// sum [group, dim] += alpha * weights [group, score_stride] * the rows of x [tokens, kv_heads,
  /// x.stride] in the slots, adjacent blocks at once.
  void add_runs(const QueryTile& tile, const SelectedSlots& slots, const T* weights,
                RowBlock<const T> x, T alpha, T* sum) const {
    const std::int64_t dim = x.stride;
    const std::int64_t most = std::max<std::int64_t>(1, kMostRunKeys / select_block());
    for (std::int64_t slot = 0; slot < slots.count;) {
      std::int64_t run = 1;
      while (run < most && slot + run < slots.count &&
             slots.blocks[slot + run] == slots.blocks[slot] + run) {
        ++run;
      }
      const std::int64_t key = tile.token + slots.blocks[slot] * select_block();
      const std::int64_t column = slot * select_block();
      gemm(Gemm<T>{.m = attention.group(),
                   .n = dim,
                   .k = std::min(run * select_block(), slots.keys - column),
                   .alpha = alpha,
                   .a = weights + column,
                   .lda = score_stride(),
                   .b = x.data + (key * attention.kv_heads + tile.kv_head) * dim,
                   .ldb = attention.kv_heads * dim,
                   .beta = 1,
                   .c = sum,
                   .ldc = dim});
      slot += run;
    }
  }

 private:
  static constexpr std::int64_t kPadding = 16;
  /// Beyond this the matrix library copies its operands before it multiplies.
  static constexpr std::int64_t kMostRunKeys = 256;
};

}  // namespace nsa::cpu
