// The backward of attend(), with five matrix products for each pair of a query tile and a key tile
// and without partial results: within one round every tile of queries and every tile of keys
// belongs to at most one pair, so a pair may add to the gradients of both, and the order in which a
// gradient is summed follows from the rounds alone.

#include "ops/cpu/attention_core.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/key_columns.h"
#include "ops/cpu/softmax_math.h"

namespace nsa::cpu {
namespace {

/// Queries of a tile: whole steps of `step` queries, and not more than keys in a block, so that no
/// two blocks of keys are first seen by the same tile of queries.
std::int64_t pair_queries(std::int64_t step) {
  return step * std::max<std::int64_t>(1, kBlockKeys / step);
}

/// A block of keys, and the tiles of queries that see it.
struct KeyTile {
  QueryTile unit;  ///< the document and KV head; its queries are not used
  std::int64_t begin = 0, end = 0;
  std::int64_t first = 0, last = 0;
};

template <class T>
std::span<KeyTile> take_key_tiles(Scratch::Frame& frame, const Attention<T>& a,
                                  std::int64_t queries) {
  std::int64_t count = 0;
  for (std::int64_t d = 0; d < a.documents.count(); ++d) {
    count += (a.rule.keys(a.documents.length(d)) + kBlockKeys - 1) / kBlockKeys * a.kv_heads;
  }
  const std::span<KeyTile> tiles(frame.take<KeyTile>(count), static_cast<std::size_t>(count));
  std::size_t at = 0;
  std::int64_t row = 0;
  for (std::int64_t d = 0; d < a.documents.count(); ++d) {
    const std::int64_t length = a.documents.length(d);
    const std::int64_t keys = a.rule.keys(length);
    for (std::int64_t head = 0; head < a.kv_heads; ++head) {
      for (std::int64_t key = 0; key < keys; key += kBlockKeys) {
        const std::int64_t end = std::min(keys, key + kBlockKeys);
        tiles[at++] = {.unit = {.token = a.documents.begin(d),
                                .key = row,
                                .length = length,
                                .begin = 0,
                                .end = 0,
                                .kv_head = head},
                       .begin = key,
                       .end = end,
                       .first = a.rule.first_query(key) / queries,
                       .last = a.rule.last_query(end - 1, length) / queries};
      }
    }
    row += keys;
  }
  return tiles;
}

/// dq of a tile += scale * ds * k.
template <class T>
void add_dq(const Attention<T>& a, const QueryTile& tile, const Gemm<T>& product, T* dq,
            Scratch& scratch) {
  const std::int64_t group = a.group();
  T* first = dq + ((tile.token + tile.begin) * a.heads + tile.kv_head * group) * a.head_dim;
  Gemm<T> g = product;
  if (a.kv_heads == 1 || group == 1) {
    g.beta = 1;
    g.c = first;
    g.ldc = a.kv_heads == 1 ? a.head_dim : a.heads * a.head_dim;
    gemm(g);
    return;
  }
  Scratch::Frame frame(scratch);
  g.c = frame.take<T>(g.m * a.head_dim);
  g.ldc = a.head_dim;
  gemm(g);
  const std::int64_t width = group * a.head_dim;
  for (std::int64_t query = 0; query < tile.queries(); ++query) {
    T* to = first + query * a.heads * a.head_dim;
    const T* from = g.c + query * width;
    for (std::int64_t c = 0; c < width; ++c) to[c] += from[c];
  }
}

/// Scores and products become the two matrices of gradients; what a query does not see becomes 0.
template <class T>
void fill_gradients(const Attention<T>& a, const AttentionGradients<T>& g, const QueryTile& tile,
                    KeyRange keys, RowBlock<T> s, T* dp) {
  const std::int64_t group = a.group();
  const std::int64_t count = keys.end - keys.begin;
  for (std::int64_t row = 0; row < tile.queries() * group; ++row) {
    const std::int64_t t = tile.begin + row / group;
    const KeyRange seen = a.rule.visible(t);
    const std::int64_t begin = std::clamp<std::int64_t>(seen.begin - keys.begin, 0, count);
    const std::int64_t end = std::clamp<std::int64_t>(seen.end - keys.begin, begin, count);
    T* s_row = s.data + row * s.stride;
    T* dp_row = dp + row * s.stride;
    if (begin < end) {
      const std::int64_t at = (tile.token + t) * a.heads + tile.kv_head * group + row % group;
      RowGradient<T>{.lse = g.lse[at],
                     .gate = g.gates == nullptr ? T(1) : g.gates[at * g.stat_stride],
                     .delta = g.deltas[at * g.stat_stride]}
          .apply(s_row + begin, dp_row + begin, end - begin);
    }
    std::fill_n(s_row, begin, T(0));
    std::fill_n(dp_row, begin, T(0));
    std::fill_n(s_row + end, count - end, T(0));
    std::fill_n(dp_row + end, count - end, T(0));
  }
}

template <class T>
struct BothColumns {
  KeyColumns<T> k;
  KeyColumns<T> v;
};

template <class T>
void backward_tile(const Attention<T>& a, const AttentionGradients<T>& g,
                   const BothColumns<T>& columns, const QueryTile& tile, KeyRange keys,
                   Scratch& scratch) {
  Scratch::Frame frame(scratch);
  const std::int64_t rows = tile.queries() * a.group();
  // Only what the last query of the tile sees, and from what the first sees.
  keys.begin = std::max(keys.begin, a.rule.visible(tile.begin).begin);
  keys.end = std::min(keys.end, a.rule.visible(tile.end - 1).end);
  const std::int64_t count = keys.end - keys.begin;
  if (count <= 0) return;
  const std::int64_t k_stride = a.kv_heads * a.head_dim;
  const std::int64_t v_stride = a.kv_heads * a.v_dim;
  const std::int64_t k_at = (tile.key + keys.begin) * k_stride + tile.kv_head * a.head_dim;
  const std::int64_t v_at = (tile.key + keys.begin) * v_stride + tile.kv_head * a.v_dim;
  const RowBlock<const T> q = tile_rows(a, tile, a.q, a.head_dim, frame);
  const RowBlock<const T> dout = tile_rows(a, tile, g.dout, a.v_dim, frame);
  T* s = frame.take<T>(rows * count);
  T* dp = frame.take<T>(rows * count);
  columns.k.multiply(tile, keys, q, rows, a.scale, {s, count});
  columns.v.multiply(tile, keys, dout, rows, T(1), {dp, count});
  fill_gradients(a, g, tile, keys, RowBlock<T>{s, count}, dp);
  gemm(Gemm<T>{.transpose_a = true,
               .m = count,
               .n = a.v_dim,
               .k = rows,
               .a = s,
               .lda = count,
               .b = dout.data,
               .ldb = dout.stride,
               .beta = 1,
               .c = g.dv + v_at,
               .ldc = v_stride});
  gemm(Gemm<T>{.transpose_a = true,
               .m = count,
               .n = a.head_dim,
               .k = rows,
               .alpha = a.scale,
               .a = dp,
               .lda = count,
               .b = q.data,
               .ldb = q.stride,
               .beta = 1,
               .c = g.dk + k_at,
               .ldc = k_stride});
  add_dq(a, tile,
         Gemm<T>{.m = rows,
                 .n = a.head_dim,
                 .k = count,
                 .alpha = a.scale,
                 .a = dp,
                 .lda = count,
                 .b = a.k + k_at,
                 .ldb = k_stride},
         g.dq, scratch);
}

}  // namespace

template <class T>
void attend_backward(const Workers& workers, const Attention<T>& a,
                     const AttentionGradients<T>& g) {
  Scratch::Frame frame(workers.of(0));
  const std::int64_t step = tile_queries(a.group(), a.largest_dim());
  const std::int64_t pair = pair_queries(step);
  const std::span<const KeyTile> tiles = take_key_tiles(frame, a, pair);
  const BothColumns<T> columns{KeyColumns<T>(workers, frame, a, a.k, a.head_dim, kBlockKeys),
                               KeyColumns<T>(workers, frame, a, a.v, a.v_dim, kBlockKeys)};
  std::int64_t rounds = 0;
  std::int64_t keys = 0;
  for (const KeyTile& tile : tiles) rounds = std::max(rounds, tile.last - tile.first + 1);
  for (std::int64_t d = 0; d < a.documents.count(); ++d) keys += a.rule.keys(a.documents.length(d));
  std::fill_n(g.dk, keys * a.kv_heads * a.head_dim, T(0));
  std::fill_n(g.dv, keys * a.kv_heads * a.v_dim, T(0));
  if (!g.accumulate_dq) std::fill_n(g.dq, a.documents.tokens() * a.heads * a.head_dim, T(0));
  for (std::int64_t round = 0; round < rounds; ++round) {
    workers.pool.for_each(static_cast<std::int64_t>(tiles.size()), [&](std::int64_t i, int worker) {
      const KeyTile& tile = tiles[static_cast<std::size_t>(i)];
      if (tile.first + round > tile.last) return;
      const std::int64_t begin = (tile.first + round) * pair;
      const std::int64_t end = std::min(tile.unit.length, begin + pair);
      for (std::int64_t t = begin; t < end; t += step) {
        QueryTile queries = tile.unit;
        queries.begin = t;
        queries.end = std::min(end, t + step);
        backward_tile(a, g, columns, queries, {tile.begin, tile.end}, workers.of(worker));
      }
    });
  }
}

template void attend_backward(const Workers&, const Attention<float>&,
                              const AttentionGradients<float>&);
template void attend_backward(const Workers&, const Attention<double>&,
                              const AttentionGradients<double>&);

}  // namespace nsa::cpu
