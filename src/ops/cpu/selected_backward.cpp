// The backward of selected attention in two passes, both without atomic sums: dq query by query;
// dk and dv block by block, over the queries that select the block in ascending order.

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/selected_blocks.h"
#include "ops/cpu/softmax_math.h"

namespace nsa::cpu {
namespace {

/// The queries that select each block: those of block b are queries[starts[b], starts[b + 1]),
/// positions in the document, ascending. Blocks are counted through all documents and KV heads in
/// the order of take_tiles().
struct BlockQueries {
  const std::int64_t* starts = nullptr;
  const std::int32_t* queries = nullptr;
};

/// Calls body(index of the block, t) for every selected block, documents, KV heads and queries in
/// ascending order.
template <class T, class Body>
void for_each_selection(const SelectedAttention<T>& s, const Body& body) {
  const Documents& documents = s.attention.documents;
  std::int64_t first = 0;
  for (std::int64_t d = 0; d < documents.count(); ++d) {
    QueryTile unit{.token = documents.begin(d), .length = documents.length(d)};
    for (unit.kv_head = 0; unit.kv_head < s.attention.kv_heads; ++unit.kv_head) {
      for (std::int64_t t = 0; t < unit.length; ++t) {
        const SelectedSlots slots = s.slots(unit, t);
        for (std::int64_t slot = 0; slot < slots.count; ++slot) {
          body(first + slots.blocks[slot], static_cast<std::int32_t>(t));
        }
      }
      first += (unit.length + s.select_block() - 1) / s.select_block();
    }
  }
}

/// A counting sort of the selections.
template <class T>
BlockQueries take_block_queries(const SelectedAttention<T>& s, std::int64_t blocks,
                                Scratch::Frame& frame) {
  auto* starts = frame.take<std::int64_t>(blocks + 1);
  std::fill_n(starts, blocks + 1, 0);
  for_each_selection(s, [&](std::int64_t block, std::int32_t) { ++starts[block + 1]; });
  for (std::int64_t b = 0; b < blocks; ++b) starts[b + 1] += starts[b];
  auto* queries = frame.take<std::int32_t>(starts[blocks]);
  auto* next = frame.take<std::int64_t>(blocks);
  std::copy_n(starts, blocks, next);
  for_each_selection(s, [&](std::int64_t block, std::int32_t t) { queries[next[block]++] = t; });
  return {starts, queries};
}

template <class T>
RowGradient<T> row_gradient(const AttentionGradients<T>& g, std::int64_t row) {
  return {.lse = g.lse[row],
          .gate = g.gates[row * g.stat_stride],
          .delta = g.deltas[row * g.stat_stride]};
}

/// dq of the heads of one group at one query.
template <class T>
void query_gradient(const SelectedAttention<T>& s, const AttentionGradients<T>& g,
                    const QueryTile& tile, std::int64_t t, Scratch& scratch) {
  Scratch::Frame frame(scratch);
  const Attention<T>& a = s.attention;
  const SelectedSlots slots = s.slots(tile, t);
  const std::int64_t row = (tile.token + t) * a.heads + tile.kv_head * a.group();
  T* dq = g.dq + row * a.head_dim;
  if (!g.accumulate_dq) std::fill_n(dq, a.group() * a.head_dim, T(0));
  T* scores = frame.take<T>(a.group() * s.score_stride());
  T* products = frame.take<T>(a.group() * s.score_stride());
  s.multiply_blocks(tile, slots, s.k_columns, {a.q + row * a.head_dim, a.head_dim}, a.scale,
                    scores);
  s.multiply_blocks(tile, slots, s.v_columns, {g.dout + row * a.v_dim, a.v_dim}, T(1), products);
  for (std::int64_t head = 0; head < a.group(); ++head) {
    row_gradient(g, row + head)
        .apply(scores + head * s.score_stride(), products + head * s.score_stride(), slots.keys);
  }
  s.add_runs(tile, slots, products, {a.k, a.head_dim}, a.scale, dq);
}

/// Memory for the gathered rows of one product.
template <class T>
struct Gathered {
  T* q;
  T* dout;
  T* scores;
  T* products;
};

/// Adds to dk and dv of a block what the queries [first, last) of its list give.
template <class T>
void add_chunk(const SelectedAttention<T>& s, const AttentionGradients<T>& g, const QueryTile& tile,
               std::span<const std::int32_t> queries, const Gathered<T>& at) {
  const Attention<T>& a = s.attention;
  const std::int64_t group = a.group();
  const std::int64_t keys = tile.queries();
  const auto rows = static_cast<std::int64_t>(queries.size()) * group;
  const std::int64_t block = tile.begin / s.select_block();
  const auto first_row = [&](std::size_t i) {
    return (tile.token + queries[i]) * a.heads + tile.kv_head * group;
  };
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const auto to = static_cast<std::int64_t>(i) * group;
    std::copy_n(a.q + first_row(i) * a.head_dim, group * a.head_dim, at.q + to * a.head_dim);
    std::copy_n(g.dout + first_row(i) * a.v_dim, group * a.v_dim, at.dout + to * a.v_dim);
  }
  const T* k = s.k_columns.block(tile, block).data;
  const T* v = s.v_columns.block(tile, block).data;
  gemm(Gemm<T>{.m = rows,
               .n = keys,
               .k = a.head_dim,
               .alpha = a.scale,
               .a = at.q,
               .lda = a.head_dim,
               .b = k,
               .ldb = keys,
               .c = at.scores,
               .ldc = keys});
  gemm(Gemm<T>{.m = rows,
               .n = keys,
               .k = a.v_dim,
               .a = at.dout,
               .lda = a.v_dim,
               .b = v,
               .ldb = keys,
               .c = at.products,
               .ldc = keys});
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const std::int64_t seen = std::min(keys, queries[i] + 1 - tile.begin);
    for (std::int64_t head = 0; head < group; ++head) {
      const std::int64_t from = (static_cast<std::int64_t>(i) * group + head) * keys;
      row_gradient(g, first_row(i) + head).apply(at.scores + from, at.products + from, seen);
      std::fill_n(at.scores + from + seen, keys - seen, T(0));
      std::fill_n(at.products + from + seen, keys - seen, T(0));
    }
  }
  const std::int64_t key = (tile.token + tile.begin) * a.kv_heads + tile.kv_head;
  gemm(Gemm<T>{.transpose_a = true,
               .m = keys,
               .n = a.v_dim,
               .k = rows,
               .a = at.scores,
               .lda = keys,
               .b = at.dout,
               .ldb = a.v_dim,
               .beta = 1,
               .c = g.dv + key * a.v_dim,
               .ldc = a.kv_heads * a.v_dim});
  gemm(Gemm<T>{.transpose_a = true,
               .m = keys,
               .n = a.head_dim,
               .k = rows,
               .alpha = a.scale,
               .a = at.products,
               .lda = keys,
               .b = at.q,
               .ldb = a.head_dim,
               .beta = 1,
               .c = g.dk + key * a.head_dim,
               .ldc = a.kv_heads * a.head_dim});
}

/// dk and dv of one block from the queries that select it.
template <class T>
void block_gradient(const SelectedAttention<T>& s, const AttentionGradients<T>& g,
                    const QueryTile& tile, std::span<const std::int32_t> queries,
                    Scratch& scratch) {
  Scratch::Frame frame(scratch);
  const Attention<T>& a = s.attention;
  const auto chunk = static_cast<std::size_t>(tile_queries(a.group(), a.largest_dim()));
  const std::int64_t rows = static_cast<std::int64_t>(chunk) * a.group();
  const Gathered<T> gathered{.q = frame.take<T>(rows * a.head_dim),
                             .dout = frame.take<T>(rows * a.v_dim),
                             .scores = frame.take<T>(rows * tile.queries()),
                             .products = frame.take<T>(rows * tile.queries())};
  for (std::int64_t key = tile.token + tile.begin; key < tile.token + tile.end; ++key) {
    const std::int64_t row = key * a.kv_heads + tile.kv_head;
    std::fill_n(g.dk + row * a.head_dim, a.head_dim, T(0));
    std::fill_n(g.dv + row * a.v_dim, a.v_dim, T(0));
  }
  for (std::size_t i = 0; i < queries.size(); i += chunk) {
    add_chunk(s, g, tile, queries.subspan(i, std::min(chunk, queries.size() - i)), gathered);
  }
}

template <class T>
void selected_backward(const Workers& workers, const SelectedAttention<T>& selected,
                       const AttentionGradients<T>& g) {
  Scratch::Frame frame(workers.of(0));
  const Attention<T>& a = selected.attention;
  SelectedAttention<T> s = selected;
  s.k_columns = KeyColumns<T>(workers, frame, a, a.k, a.head_dim, s.select_block());
  s.v_columns = KeyColumns<T>(workers, frame, a, a.v, a.v_dim, s.select_block());
  const std::span<const QueryTile> pieces =
      take_tiles(frame, a.documents, a.rule, a.kv_heads, kPieceQueries);
  workers.pool.for_each(static_cast<std::int64_t>(pieces.size()), [&](std::int64_t i, int worker) {
    const QueryTile& tile = pieces[static_cast<std::size_t>(i)];
    for (std::int64_t t = tile.begin; t < tile.end; ++t) {
      query_gradient(s, g, tile, t, workers.of(worker));
    }
  });
  const std::span<const QueryTile> blocks =
      take_tiles(frame, a.documents, a.rule, a.kv_heads, s.select_block());
  const auto count = static_cast<std::int64_t>(blocks.size());
  const BlockQueries lists = take_block_queries(s, count, frame);
  workers.pool.for_each(count, [&](std::int64_t i, int worker) {
    const std::span<const std::int32_t> queries(
        lists.queries + lists.starts[i],
        static_cast<std::size_t>(lists.starts[i + 1] - lists.starts[i]));
    block_gradient(s, g, blocks[static_cast<std::size_t>(i)], queries, workers.of(worker));
  });
}

}  // namespace

void CpuOps::apply(const SelectedAttentionBackward& op) {
  with_float(op.q.dtype(), [&]<class T>() {
    selected_backward(
        Workers{pool_, scratch_},
        SelectedAttention<T>(attention_of<T>(op, KeyRule{.geometry = op.geometry}), op.blocks),
        gradients_of<T>(op, kSelected));
  });
}

}  // namespace nsa::cpu
