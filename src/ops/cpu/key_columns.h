#pragma once

// Keys or values, block by block transposed. The tiles of attention are small, and products without
// a transposed right operand are the ones that a matrix library does fast at such sizes.

#include "ops/cpu/attention_core.h"
#include "ops/cpu/gemm.h"

namespace nsa::cpu {

/// x [keys, kv_heads, dim] with every block of `block` keys (the last of a document: what is left)
/// of every KV head as [dim, keys of the block].
template <class T>
class KeyColumns {
 public:
  KeyColumns() = default;
  /// Transposes all of x into the frame; `a` gives the documents, their keys and the KV heads.
  KeyColumns(const Workers& workers, Scratch::Frame& frame, const Attention<T>& a, const T* x,
             std::int64_t dim, std::int64_t block)
      : rule_(a.rule), kv_heads_(a.kv_heads), dim_(dim), block_(block) {
    std::int64_t count = 0;
    std::int64_t rows = 0;
    for (std::int64_t d = 0; d < a.documents.count(); ++d) {
      const std::int64_t keys = a.rule.keys(a.documents.length(d));
      count += (keys + block - 1) / block * kv_heads_;
      rows += keys;
    }
    T* all = frame.take<T>(rows * kv_heads_ * dim);
    data_ = all;
    Scratch::Frame list(workers.of(0));
    auto* parts = list.take<Part>(count);
    std::int64_t at = 0;
    std::int64_t row = 0;
    for (std::int64_t d = 0; d < a.documents.count(); ++d) {
      const std::int64_t keys = a.rule.keys(a.documents.length(d));
      for (std::int64_t head = 0; head < kv_heads_; ++head) {
        for (std::int64_t key = 0; key < keys; key += block) {
          parts[at++] = {row + key, std::min(block, keys - key), head};
        }
      }
      row += keys;
    }
    workers.pool.for_each(count, [&](std::int64_t i, int) { transpose(parts[i], x, all); });
  }

  /// Block `index` of the tile's document and KV head; the stride is its number of keys.
  RowBlock<const T> block(const QueryTile& tile, std::int64_t index) const {
    const std::int64_t begin = index * block_;
    const std::int64_t keys = std::min(block_, rule_.keys(tile.length) - begin);
    return {data_ + ((tile.key + begin) * kv_heads_ + tile.kv_head * keys) * dim_, keys};
  }

  /// c [rows, keys of the range] = alpha * x [rows, dim] * the keys of the range.
  void multiply(const QueryTile& tile, KeyRange range, RowBlock<const T> x, std::int64_t rows,
                T alpha, RowBlock<T> c) const {
    for (std::int64_t key = range.begin; key < range.end;) {
      const std::int64_t index = key / block_;
      const std::int64_t end = std::min(range.end, (index + 1) * block_);
      const RowBlock<const T> b = block(tile, index);
      gemm(Gemm<T>{.m = rows,
                   .n = end - key,
                   .k = dim_,
                   .alpha = alpha,
                   .a = x.data,
                   .lda = x.stride,
                   .b = b.data + (key - index * block_),
                   .ldb = b.stride,
                   .c = c.data + (key - range.begin),
                   .ldc = c.stride});
      key = end;
    }
  }

 private:
  struct Part {
    std::int64_t row = 0, keys = 0, kv_head = 0;
  };

  void transpose(const Part& part, const T* x, T* all) const {
    const T* from = x + (part.row * kv_heads_ + part.kv_head) * dim_;
    T* to = all + (part.row * kv_heads_ + part.kv_head * part.keys) * dim_;
    for (std::int64_t c = 0; c < dim_; ++c) {
      for (std::int64_t key = 0; key < part.keys; ++key) {
        to[c * part.keys + key] = from[key * kv_heads_ * dim_ + c];
      }
    }
  }

  const T* data_ = nullptr;
  KeyRule rule_;
  std::int64_t kv_heads_ = 0, dim_ = 0, block_ = 1;
};

}  // namespace nsa::cpu
