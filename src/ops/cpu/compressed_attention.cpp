#include <algorithm>

#include "ops/cpu/attention_core.h"
#include "ops/cpu/block_choice.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/key_columns.h"
#include "ops/cpu/softmax_math.h"

namespace nsa::cpu {
namespace {

/// Compressed keys whose scores are in the cache at once.
constexpr std::int64_t kStepKeys = 256;

/// What the score pass writes; either may be absent.
template <class T>
struct ScoreOutputs {
  std::int32_t* blocks = nullptr;
  T* importance = nullptr;
  std::int64_t columns = 0;  ///< of importance
};

/// Probabilities of a tile, summed over the heads of the group: sums [queries, stride], columns
/// from the first compressed key to the last that the query sees.
template <class T>
void sum_probabilities(const Attention<T>& a, const KeyColumns<T>& k, const QueryTile& tile,
                       const T* lse, RowBlock<T> sums, Scratch& scratch) {
  Scratch::Frame frame(scratch);
  const std::int64_t group = a.group();
  const std::int64_t rows = tile.queries() * group;
  const std::int64_t keys = a.rule.visible(tile.end - 1).end;
  const RowBlock<const T> q = tile_rows(a, tile, a.q, a.head_dim, frame);
  T* scores = frame.take<T>(rows * kStepKeys);
  for (std::int64_t key = 0; key < keys; key += kStepKeys) {
    const std::int64_t count = std::min(kStepKeys, keys - key);
    k.multiply(tile, {key, key + count}, q, rows, a.scale, {scores, count});
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t t = tile.begin + row / group;
      const std::int64_t seen = std::min(count, a.rule.visible(t).end - key);
      const T shift = lse[(tile.token + t) * a.heads + tile.kv_head * group + row % group];
      const T* s = scores + row * count;
      T* sum = sums.data + row / group * sums.stride + key;
      if (row % group == 0) {
        for (std::int64_t i = 0; i < seen; ++i) sum[i] = exp_of_score(s[i] - shift);
      } else {
        for (std::int64_t i = 0; i < seen; ++i) sum[i] += exp_of_score(s[i] - shift);
      }
    }
  }
}

/// Importance of blocks from the probabilities of compressed keys (equation 9). A block's weights
/// depend on the distance of the key from the block alone, so one row of them serves every block.
template <class T>
struct BlockScores {
  const NsaGeometry& geometry;
  T* weights;  ///< [reach()]

  /// Compressed keys that may overlap a block.
  static std::int64_t reach(const NsaGeometry& g) {
    return (g.select_block + g.compress_block()) / g.rate - 1;
  }
  /// Key that weights[0] belongs to, below 0 for the first block.
  std::int32_t first_key(std::int32_t block) const {
    return (geometry.select_block * block - geometry.compress_block()) / geometry.rate + 1;
  }
  void fill_weights() const {
    // A block far enough from the start that all the keys exist.
    const std::int32_t block = geometry.overlap + 1;
    for (std::int32_t u = 0; u < static_cast<std::int32_t>(reach(geometry)); ++u) {
      weights[u] = static_cast<T>(geometry.score_weight(first_key(block) + u, block));
    }
  }
  /// scores of blocks 0 to the current one of the query at t, which sees the first `seen` keys.
  void apply(std::int32_t t, const T* probabilities, std::int32_t seen, T* scores) const {
    for (std::int32_t j = 0; j <= geometry.current_block(t); ++j) {
      const std::int32_t first = first_key(j);
      const std::int32_t end = std::min(geometry.score_end(j), seen);
      T score = 0;
      for (std::int32_t i = std::max(0, first); i < end; ++i) {
        score += weights[i - first] * probabilities[i];
      }
      scores[j] = score;
    }
  }
};

template <class T>
void select_tile(const Attention<T>& a, const KeyColumns<T>& k, const QueryTile& tile, const T* lse,
                 const ScoreOutputs<T>& outputs, Scratch& scratch) {
  const NsaGeometry& geometry = a.rule.geometry;
  Scratch::Frame frame(scratch);
  const std::int64_t keys = a.rule.visible(tile.end - 1).end;
  const RowBlock<T> sums{frame.take<T>(tile.queries() * keys), keys};
  T* scores = frame.take<T>(geometry.current_block(static_cast<std::int32_t>(tile.end - 1)) + 1);
  auto* heap = frame.take<Candidate<T>>(geometry.top_n);
  const BlockScores<T> block_scores{geometry, frame.take<T>(BlockScores<T>::reach(geometry))};
  block_scores.fill_weights();
  sum_probabilities(a, k, tile, lse, sums, scratch);
  for (std::int64_t t = tile.begin; t < tile.end; ++t) {
    const auto seen = static_cast<std::int32_t>(a.rule.visible(t).end);
    block_scores.apply(static_cast<std::int32_t>(t), sums.data + (t - tile.begin) * keys, seen,
                       scores);
    const std::int64_t row = (tile.token + t) * a.kv_heads + tile.kv_head;
    if (outputs.blocks != nullptr) {
      choose_blocks(geometry, t, scores, heap, outputs.blocks + row * geometry.top_n);
    }
    if (outputs.importance != nullptr) {
      const std::int64_t blocks = geometry.current_block(static_cast<std::int32_t>(t)) + 1;
      T* to = outputs.importance + row * outputs.columns;
      std::copy_n(scores, blocks, to);
      std::fill(to + blocks, to + outputs.columns, T(0));
    }
  }
}

template <class T>
void select(const Workers& workers, const Attention<T>& a, const CompressedSelectForward& op) {
  ScoreOutputs<T> outputs;
  if (op.blocks.defined() && !op.reuse_blocks) outputs.blocks = op.blocks.as<std::int32_t>();
  if (op.importance.defined()) {
    outputs.importance = op.importance.as<T>();
    outputs.columns = op.importance.dim(2);
  }
  if (outputs.blocks == nullptr && outputs.importance == nullptr) return;
  const T* lse = op.lse.as<T>();
  Scratch::Frame frame(workers.of(0));
  const KeyColumns<T> k(workers, frame, a, a.k, a.head_dim, kBlockKeys);
  const std::span<const QueryTile> tiles =
      take_tiles(frame, a.documents, a.rule, a.kv_heads, tile_queries(a.group(), a.largest_dim()));
  workers.pool.for_each(static_cast<std::int64_t>(tiles.size()), [&](std::int64_t i, int worker) {
    select_tile(a, k, tiles[static_cast<std::size_t>(i)], lse, outputs, workers.of(worker));
  });
}

}  // namespace

void CpuOps::apply(const CompressedSelectForward& op) {
  const KeyRule rule{.kind = KeyRule::Kind::kCompressed, .geometry = op.geometry};
  with_float(op.q.dtype(), [&]<class T>() {
    const Workers workers{pool_, scratch_};
    const Attention<T> a = attention_of<T>(op, rule);
    attend(workers, a, op.out.defined() ? op.out.as<T>() : nullptr, op.lse.as<T>());
    select(workers, a, op);
  });
}

void CpuOps::apply(const CompressedAttentionBackward& op) {
  const KeyRule rule{.kind = KeyRule::Kind::kCompressed, .geometry = op.geometry};
  with_float(op.q.dtype(), [&]<class T>() {
    attend_backward(Workers{pool_, scratch_}, attention_of<T>(op, rule),
                    gradients_of<T>(op, kCompressed));
  });
}

}  // namespace nsa::cpu
