#pragma once

// The masked softmax attention under the dense, window and compressed ops: what a query sees is one
// contiguous range of keys, whose ends never decrease from one query to the next.
//
// Work is cut into tiles from the start of each document by shape alone, so a document gives the
// same bits wherever it stands in the packed row and however many threads there are.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <span>

#include "core/batch.h"
#include "core/parallel.h"
#include "ops/cpu/scratch.h"
#include "ops/nsa_geometry.h"

namespace nsa::cpu {

/// What a loop of an op runs on.
struct Workers {
  WorkerPool& pool;
  std::deque<Scratch>& scratch;  ///< one per worker; the first also serves the calling thread

  Scratch& of(int worker) const { return scratch[static_cast<std::size_t>(worker)]; }
};

/// Keys [begin, end) of a document.
struct KeyRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Which keys the query at t sees. Positions and keys are local to the document.
struct KeyRule {
  enum class Kind : std::uint8_t { kCausal, kWindow, kCompressed };
  Kind kind = Kind::kCausal;
  NsaGeometry geometry;

  /// Keys of a document of `tokens` tokens.
  std::int64_t keys(std::int64_t tokens) const {
    return kind == Kind::kCompressed ? geometry.compressed_blocks(static_cast<std::int32_t>(tokens))
                                     : tokens;
  }
  KeyRange visible(std::int64_t t) const {
    if (kind == Kind::kCausal) return {0, t + 1};
    if (kind == Kind::kWindow) return {geometry.window_begin(static_cast<std::int32_t>(t)), t + 1};
    return {0, geometry.visible_blocks(static_cast<std::int32_t>(t))};
  }
  /// The first query that sees a key; it grows strictly with the key.
  std::int64_t first_query(std::int64_t key) const {
    return kind == Kind::kCompressed
               ? key * geometry.compress_stride() + geometry.compress_block() - 1
               : key;
  }
  /// The last query of a document of `tokens` tokens that sees a key.
  std::int64_t last_query(std::int64_t key, std::int64_t tokens) const {
    return kind == Kind::kWindow ? std::min(tokens, key + geometry.window) - 1 : tokens - 1;
  }
};

/// One attention problem: q [tokens, heads, head_dim], k [keys, kv_heads, head_dim], v [keys,
/// kv_heads, v_dim]. Query head h reads KV head h / group().
template <class T>
struct Attention {
  const T* q = nullptr;
  const T* k = nullptr;
  const T* v = nullptr;  ///< null where only lse is wanted
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0, v_dim = 0;
  T scale = 0;
  KeyRule rule;
  Documents documents;

  std::int64_t group() const { return heads / kv_heads; }
  std::int64_t largest_dim() const { return std::max(head_dim, v_dim); }
};

/// The fields that every attention op has.
template <class T, class Op>
Attention<T> attention_of(const Op& op, const KeyRule& rule) {
  return {.q = op.q.template as<T>(),
          .k = op.k.template as<T>(),
          .v = op.v.defined() ? op.v.template as<T>() : nullptr,
          .heads = op.q.dim(1),
          .kv_heads = op.k.dim(1),
          .head_dim = op.q.dim(2),
          .v_dim = op.v.defined() ? op.v.dim(2) : 0,
          .scale = static_cast<T>(op.scale),
          .rule = rule,
          .documents = op.documents};
}

/// Queries [begin, end) of one document with the heads of one KV head.
struct QueryTile {
  std::int64_t token = 0;  ///< row of the document's first token
  std::int64_t key = 0;    ///< row of its first key
  std::int64_t length = 0;
  std::int64_t begin = 0, end = 0;
  std::int64_t kv_head = 0;

  std::int64_t queries() const { return end - begin; }
};

/// Keys that one matrix product takes.
constexpr std::int64_t kBlockKeys = 64;

/// Queries in a tile: as many rows (query, head) as one product takes fast, but few enough that a
/// tile sees little more than each of its queries does.
inline std::int64_t tile_queries(std::int64_t group, std::int64_t dim) {
  // Up to this many multiplications OpenBLAS does not copy its operands first.
  constexpr std::int64_t kFastProduct = 1'000'000;
  constexpr std::int64_t kMostRows = 256;
  constexpr std::int64_t kMostQueries = 64;
  const std::int64_t rows = std::min(kMostRows, kFastProduct / (kBlockKeys * dim));
  return std::clamp<std::int64_t>(rows / group, 1, kMostQueries);
}

/// All tiles of `queries` queries, in memory of the frame.
std::span<QueryTile> take_tiles(Scratch::Frame& frame, const Documents& documents,
                                const KeyRule& rule, std::int64_t kv_heads, std::int64_t queries);

/// Rows of a matrix with a stride.
template <class T>
struct RowBlock {
  T* data = nullptr;
  std::int64_t stride = 0;
};

/// The rows (query, head of the group) of a tile, queries outermost, of x [tokens, heads, dim]:
/// in place where their stride is constant, otherwise copied into the frame.
template <class T>
RowBlock<const T> tile_rows(const Attention<T>& a, const QueryTile& tile, const T* x,
                            std::int64_t dim, Scratch::Frame& frame);

/// out [tokens, heads, v_dim] (null: not wanted) and lse [tokens, heads]. Rows that see no key: out
/// 0, lse -infinity.
template <class T>
void attend(const Workers& workers, const Attention<T>& a, T* out, T* lse);

/// The backward of attend(): the upstream gradient of row (t, h) is gate * dout.
template <class T>
struct AttentionGradients {
  T* dq = nullptr;
  T* dk = nullptr;
  T* dv = nullptr;
  const T* lse = nullptr;     ///< [tokens, heads]
  const T* dout = nullptr;    ///< [tokens, heads, v_dim]
  const T* gates = nullptr;   ///< element (t * heads + h) * stat_stride; null: 1
  const T* deltas = nullptr;  ///< likewise: <gate * dout, out>
  std::int64_t stat_stride = 1;
  bool accumulate_dq = false;
};

/// The gradients of one branch of NSA, whose gates and deltas lie [tokens, heads, 3].
template <class T, class Op>
AttentionGradients<T> gradients_of(const Op& op, int branch) {
  return {.dq = op.dq.template as<T>(),
          .dk = op.dk.template as<T>(),
          .dv = op.dv.template as<T>(),
          .lse = op.lse.template as<T>(),
          .dout = op.dout.template as<T>(),
          .gates = op.gates.template as<T>() + branch,
          .deltas = op.deltas.template as<T>() + branch,
          .stat_stride = 3,
          .accumulate_dq = op.accumulate_dq};
}

/// dk and dv are overwritten, and dq unless accumulate_dq.
template <class T>
void attend_backward(const Workers& workers, const Attention<T>& a, const AttentionGradients<T>& g);

}  // namespace nsa::cpu
