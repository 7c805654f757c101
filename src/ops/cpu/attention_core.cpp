#include "ops/cpu/attention_core.h"

#include <cmath>
#include <limits>

#include "ops/cpu/gemm.h"
#include "ops/cpu/key_columns.h"
#include "ops/cpu/softmax_math.h"

namespace nsa::cpu {
namespace {

/// Blocks of keys in one step of the running softmax: the scores of a tile stay in the cache.
constexpr std::int64_t kMostStepBlocks = 6;
/// Keeps the rows of scores from falling on the same cache lines.
constexpr std::int64_t kPadding = 16;

/// The blocks that the range touches, cut into the fewest equal steps.
std::int64_t step_keys(KeyRange range) {
  const std::int64_t blocks = (range.end + kBlockKeys - 1) / kBlockKeys - range.begin / kBlockKeys;
  const std::int64_t steps = (blocks + kMostStepBlocks - 1) / kMostStepBlocks;
  return steps == 0 ? kBlockKeys : (blocks + steps - 1) / steps * kBlockKeys;
}

/// The running softmax of a tile: rows of unnormalised sums, and for each its largest score and
/// its sum of exponentials.
template <class T>
struct RunningSoftmax {
  T* sums;
  T* largest;
  T* total;
  std::int64_t v_dim;

  /// Turns `count` scores of a row into exponentials, of which only [visible.begin, visible.end)
  /// are not 0, and rescales what the row has summed so far.
  void step(std::int64_t row, T* s, std::int64_t count, KeyRange visible) const {
    if (visible.begin >= visible.end) {
      std::fill_n(s, count, T(0));
      return;
    }
    const std::int64_t seen = visible.end - visible.begin;
    const T before = largest[row];
    const T now = std::max(before, largest_score(s + visible.begin, seen));
    std::fill_n(s, visible.begin, T(0));
    std::fill_n(s + visible.end, count - visible.end, T(0));
    const T sum = exponentiate(s + visible.begin, seen, now);
    if (before == -std::numeric_limits<T>::infinity()) {
      total[row] = sum;
    } else if (before == now) {
      total[row] += sum;
    } else {
      const T shrink = exp_of_score(before - now);
      total[row] = total[row] * shrink + sum;
      T* o = sums + row * v_dim;
      for (std::int64_t c = 0; c < v_dim; ++c) o[c] *= shrink;
    }
    largest[row] = now;
  }
};

/// What attend() writes.
template <class T>
struct AttentionOutputs {
  T* out = nullptr;
  T* lse = nullptr;
};

/// The part of `range` inside [begin, begin + count), relative to begin.
KeyRange clip(KeyRange range, std::int64_t begin, std::int64_t count) {
  return {std::clamp<std::int64_t>(range.begin - begin, 0, count),
          std::clamp<std::int64_t>(range.end - begin, 0, count)};
}

template <class T>
void write_rows(const Attention<T>& a, const QueryTile& tile, const RunningSoftmax<T>& softmax,
                const AttentionOutputs<T>& outputs) {
  T* out = outputs.out;
  T* lse = outputs.lse;
  const std::int64_t group = a.group();
  for (std::int64_t row = 0; row < tile.queries() * group; ++row) {
    const std::int64_t at =
        (tile.token + tile.begin + row / group) * a.heads + tile.kv_head * group + row % group;
    const bool empty = softmax.largest[row] == -std::numeric_limits<T>::infinity();
    lse[at] = empty ? softmax.largest[row] : softmax.largest[row] + std::log(softmax.total[row]);
    if (out == nullptr) continue;
    const T scale = empty ? T(0) : T(1) / softmax.total[row];
    const T* o = softmax.sums + row * a.v_dim;
    for (std::int64_t c = 0; c < a.v_dim; ++c) out[at * a.v_dim + c] = empty ? T(0) : o[c] * scale;
  }
}

/// sums += the exponentials of the keys of the range * their values.
template <class T>
void add_values(const Attention<T>& a, const QueryTile& tile, KeyRange range, RowBlock<T> scores,
                T* sums) {
  const std::int64_t v_stride = a.kv_heads * a.v_dim;
  for (std::int64_t key = range.begin; key < range.end; key += kBlockKeys) {
    gemm(Gemm<T>{.m = tile.queries() * a.group(),
                 .n = a.v_dim,
                 .k = std::min(kBlockKeys, range.end - key),
                 .a = scores.data + (key - range.begin),
                 .lda = scores.stride,
                 .b = a.v + (tile.key + key) * v_stride + tile.kv_head * a.v_dim,
                 .ldb = v_stride,
                 .beta = 1,
                 .c = sums,
                 .ldc = a.v_dim});
  }
}

template <class T>
void attend_tile(const Attention<T>& a, const KeyColumns<T>& k, const QueryTile& tile,
                 Scratch& scratch, const AttentionOutputs<T>& outputs) {
  Scratch::Frame frame(scratch);
  const std::int64_t rows = tile.queries() * a.group();
  const KeyRange range{a.rule.visible(tile.begin).begin, a.rule.visible(tile.end - 1).end};
  const std::int64_t step = step_keys(range);
  const RowBlock<const T> q = tile_rows(a, tile, a.q, a.head_dim, frame);
  const RowBlock<T> scores{frame.take<T>(rows * (step + kPadding)), step + kPadding};
  const RunningSoftmax<T> softmax{.sums = frame.take<T>(rows * a.v_dim),
                                  .largest = frame.take<T>(rows),
                                  .total = frame.take<T>(rows),
                                  .v_dim = a.v_dim};
  std::fill_n(softmax.sums, rows * a.v_dim, T(0));
  std::fill_n(softmax.largest, rows, -std::numeric_limits<T>::infinity());
  std::fill_n(softmax.total, rows, T(0));
  for (std::int64_t key = range.begin; key < range.end;) {
    const std::int64_t end = std::min(range.end, key / kBlockKeys * kBlockKeys + step);
    k.multiply(tile, {key, end}, q, rows, a.scale, scores);
    for (std::int64_t row = 0; row < rows; ++row) {
      const KeyRange seen = a.rule.visible(tile.begin + row / a.group());
      softmax.step(row, scores.data + row * scores.stride, end - key, clip(seen, key, end - key));
    }
    if (outputs.out != nullptr) add_values(a, tile, {key, end}, scores, softmax.sums);
    key = end;
  }
  write_rows(a, tile, softmax, outputs);
}

}  // namespace

std::span<QueryTile> take_tiles(Scratch::Frame& frame, const Documents& documents,
                                const KeyRule& rule, std::int64_t kv_heads, std::int64_t queries) {
  std::int64_t count = 0;
  for (std::int64_t d = 0; d < documents.count(); ++d) {
    count += (documents.length(d) + queries - 1) / queries * kv_heads;
  }
  const std::span<QueryTile> tiles(frame.take<QueryTile>(count), static_cast<std::size_t>(count));
  std::size_t at = 0;
  std::int64_t key = 0;
  for (std::int64_t d = 0; d < documents.count(); ++d) {
    const std::int64_t length = documents.length(d);
    for (std::int64_t head = 0; head < kv_heads; ++head) {
      for (std::int64_t begin = 0; begin < length; begin += queries) {
        tiles[at++] = {.token = documents.begin(d),
                       .key = key,
                       .length = length,
                       .begin = begin,
                       .end = std::min(length, begin + queries),
                       .kv_head = head};
      }
    }
    key += rule.keys(length);
  }
  return tiles;
}

template <class T>
RowBlock<const T> tile_rows(const Attention<T>& a, const QueryTile& tile, const T* x,
                            std::int64_t dim, Scratch::Frame& frame) {
  const std::int64_t group = a.group();
  const T* first = x + ((tile.token + tile.begin) * a.heads + tile.kv_head * group) * dim;
  if (a.kv_heads == 1) return {first, dim};
  if (group == 1) return {first, a.heads * dim};
  T* rows = frame.take<T>(tile.queries() * group * dim);
  for (std::int64_t query = 0; query < tile.queries(); ++query) {
    std::copy_n(first + query * a.heads * dim, group * dim, rows + query * group * dim);
  }
  return {rows, dim};
}

template <class T>
void attend(const Workers& workers, const Attention<T>& a, T* out, T* lse) {
  Scratch::Frame frame(workers.of(0));
  const KeyColumns<T> k(workers, frame, a, a.k, a.head_dim, kBlockKeys);
  const std::span<const QueryTile> tiles =
      take_tiles(frame, a.documents, a.rule, a.kv_heads, tile_queries(a.group(), a.largest_dim()));
  workers.pool.for_each(static_cast<std::int64_t>(tiles.size()), [&](std::int64_t i, int worker) {
    attend_tile(a, k, tiles[static_cast<std::size_t>(i)], workers.of(worker), {out, lse});
  });
}

template RowBlock<const float> tile_rows(const Attention<float>&, const QueryTile&, const float*,
                                         std::int64_t, Scratch::Frame&);
template RowBlock<const double> tile_rows(const Attention<double>&, const QueryTile&, const double*,
                                          std::int64_t, Scratch::Frame&);
template void attend(const Workers&, const Attention<float>&, float*, float*);
template void attend(const Workers&, const Attention<double>&, double*, double*);

}  // namespace nsa::cpu
