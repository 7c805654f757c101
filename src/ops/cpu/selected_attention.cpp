#include <cmath>
#include <limits>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/selected_blocks.h"
#include "ops/cpu/softmax_math.h"

namespace nsa::cpu {
namespace {

/// The heads of one group at one query.
template <class T>
void attend_query(const SelectedAttention<T>& s, const QueryTile& tile, std::int64_t t, T* scores,
                  const SelectedAttentionForward& op) {
  const Attention<T>& a = s.attention;
  const SelectedSlots slots = s.slots(tile, t);
  const std::int64_t row = (tile.token + t) * a.heads + tile.kv_head * a.group();
  T* out = op.out.as<T>() + row * a.v_dim;
  T* lse = op.lse.as<T>() + row;
  if (slots.keys == 0) {
    std::fill_n(out, a.group() * a.v_dim, T(0));
    std::fill_n(lse, a.group(), -std::numeric_limits<T>::infinity());
    return;
  }
  s.multiply_blocks(tile, slots, s.k_columns, {a.q + row * a.head_dim, a.head_dim}, a.scale,
                    scores);
  for (std::int64_t head = 0; head < a.group(); ++head) {
    T* p = scores + head * s.score_stride();
    const T largest = largest_score(p, slots.keys);
    const T total = exponentiate(p, slots.keys, largest);
    lse[head] = largest + std::log(total);
    const T scale = T(1) / total;
    for (std::int64_t i = 0; i < slots.keys; ++i) p[i] *= scale;
  }
  std::fill_n(out, a.group() * a.v_dim, T(0));
  s.add_runs(tile, slots, scores, {a.v, a.v_dim}, T(1), out);
}

}  // namespace

void CpuOps::apply(const SelectedAttentionForward& op) {
  with_float(op.q.dtype(), [&]<class T>() {
    const Workers workers{pool_, scratch_};
    Scratch::Frame frame(scratch_.front());
    SelectedAttention<T> s(attention_of<T>(op, KeyRule{.geometry = op.geometry}), op.blocks);
    const Attention<T>& a = s.attention;
    s.k_columns = KeyColumns<T>(workers, frame, a, a.k, a.head_dim, s.select_block());
    const std::span<const QueryTile> tiles =
        take_tiles(frame, op.documents, a.rule, a.kv_heads, kPieceQueries);
    pool_.for_each(static_cast<std::int64_t>(tiles.size()), [&](std::int64_t i, int worker) {
      const QueryTile& tile = tiles[static_cast<std::size_t>(i)];
      Scratch::Frame local(scratch(worker));
      T* scores = local.take<T>(s.attention.group() * s.score_stride());
      for (std::int64_t t = tile.begin; t < tile.end; ++t) {
        attend_query(s, tile, t, scores, op);
      }
    });
  });
}

}  // namespace nsa::cpu
