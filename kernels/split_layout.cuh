#pragma once

// The parts of a projection row, and which lanes work on them.

#include <array>
#include <cstdint>
#include <limits>
#include <vector_types.h>

#include "kernels/common/documents.h"
#include "kernels/common/reduce.cuh"
#include "kernels/common/types.cuh"
#include "ops/split_rope.h"

namespace nsa::cuda {

/// Where columns of the projection come from or go to: all heads of one tensor. A head is cut into
/// packs of W elements and those into slots: pack s with pack s + turning, which turn together,
/// for s < turning; then every pack from 2 * turning on alone.
template <class T>
struct SplitPart {
  std::int64_t column;  ///< first of it in a projection row
  std::int32_t heads;
  std::int32_t dim;         ///< channels of a head
  std::int32_t turning;     ///< slots of two packs
  std::int32_t slots;       ///< of a head
  std::int32_t lanes;       ///< that share a head: a power of two up to 32
  std::int32_t lanes_log;   ///< its logarithm
  std::int32_t first_lane;  ///< of its first head, among the lanes of a token
  const T* norm;            ///< [dim] weight of the QK-norm, or null
  std::int32_t norm_slot;   ///< which of [q, k0, k1, k2] the norm is
  std::int32_t sources;     ///< tensors below; forward: 1 or more copies, backward: summands
  T* tensor[3];             ///< [tokens, heads, dim]
  bool turns[3];
};

constexpr int kMostParts = 8;  // q, three pairs, gates

template <class T>
struct SplitLayout {
  SplitPart<T> parts[kMostParts];
  std::int32_t count;
  std::int32_t warps;    ///< of a token; no warp has lanes of two tokens
  std::int64_t columns;  ///< of a projection row
  std::int64_t tokens;
  std::int32_t half;    ///< half of the channels that turn
  const float2* turns;  ///< by position, [.., half]
  DocumentView documents;
  float eps;
  bool normalises;  ///< then every part starts at a warp: the lanes of a warp norm alike
};

/// Collects the parts of a row from left to right.
template <class T>
class LayoutBuilder {
 public:
  explicit LayoutBuilder(SplitLayout<T>& layout) : layout_(layout) {}

  /// The next columns of the row; `turning` of each head's channels may turn.
  SplitPart<T>& add(std::int64_t heads, std::int64_t dim, std::int32_t turning) {
    SplitPart<T>& part = layout_.parts[layout_.count++];
    part = {};
    part.column = layout_.columns;
    part.heads = static_cast<std::int32_t>(heads);
    part.dim = static_cast<std::int32_t>(dim);
    part.turning = turning / 2;
    layout_.columns += heads * dim;
    return part;
  }
  static void attach(SplitPart<T>& part, const Tensor& tensor, bool turns) {
    if (!tensor.defined()) return;
    part.tensor[part.sources] = elements<T>(tensor);
    part.turns[part.sources++] = turns;
  }

 private:
  SplitLayout<T>& layout_;
};

/// Keys, then values, of the pairs that share columns: pairs [first, last).
template <class T>
void add_pairs(LayoutBuilder<T>& builder, const SplitRopeForward& op,
               const std::array<KvPair, 3>& pairs, std::size_t first, std::size_t last) {
  const auto defined = [&](auto member) -> const Tensor* {
    for (std::size_t i = first; i < last; ++i) {
      if ((op.pairs[i].*member).defined()) return &(op.pairs[i].*member);
    }
    return nullptr;
  };
  if (const Tensor* k = defined(&KvPair::k)) {
    const auto turning = static_cast<std::int32_t>(op.rope.rotary_dim);
    SplitPart<T>& part = builder.add(k->dim(1), k->dim(2), turning);
    for (std::size_t i = first; i < last; ++i) builder.attach(part, pairs[i].k, op.rotate[i]);
    if (op.q_norm.defined()) {
      const std::int64_t norm_row = op.share_kv ? 0 : static_cast<std::int64_t>(first);
      part.norm = elements<T>(op.k_norm) + norm_row * k->dim(2);
      part.norm_slot = 1 + static_cast<std::int32_t>(norm_row);
    }
  }
  if (const Tensor* v = defined(&KvPair::v)) {
    SplitPart<T>& part = builder.add(v->dim(1), v->dim(2), 0);
    for (std::size_t i = first; i < last; ++i) builder.attach(part, pairs[i].v, false);
  }
}

/// `q`, `pairs` and `gates`: the tensors of the direction at hand. Packs and lanes come later.
template <class T>
SplitLayout<T> make_layout(const SplitRopeForward& op, const Tensor& q,
                           const std::array<KvPair, 3>& pairs, const Tensor& gates) {
  SplitLayout<T> layout{};
  layout.tokens = op.q.dim(0);
  layout.half = static_cast<std::int32_t>(op.rope.rotary_dim / 2);
  layout.eps = static_cast<float>(op.norm_eps);
  layout.normalises = op.q_norm.defined();
  LayoutBuilder<T> builder(layout);
  SplitPart<T>& queries = builder.add(op.q.dim(1), op.q.dim(2), 2 * layout.half);
  builder.attach(queries, q, true);
  queries.norm = elements<T>(op.q_norm);
  if (op.share_kv) {
    add_pairs(builder, op, pairs, 0, pairs.size());
  } else {
    for (std::size_t i = 0; i < pairs.size(); ++i) add_pairs(builder, op, pairs, i, i + 1);
  }
  if (op.gate_logits.defined()) builder.attach(builder.add(1, op.q.dim(1) * 3, 0), gates, false);
  return layout;
}

/// Whether heads, rows and turning halves all stay aligned to packs of `width`.
template <class T>
bool fits(const SplitLayout<T>& layout, int width) {
  bool all = layout.columns % width == 0 && layout.half % width == 0;
  for (std::int32_t i = 0; i < layout.count; ++i) all = all && layout.parts[i].dim % width == 0;
  return all;
}

/// Gives every head its lanes; returns the warps of all tokens.
template <class T>
std::uint32_t set_lanes(SplitLayout<T>& layout, int width) {
  std::int32_t lane = 0;
  for (std::int32_t i = 0; i < layout.count; ++i) {
    SplitPart<T>& part = layout.parts[i];
    part.turning /= width;
    part.slots = part.dim / width - part.turning;
    part.lanes = 1;
    while (part.lanes < kWarpSize && part.lanes < part.slots) part.lanes *= 2, ++part.lanes_log;
    const std::int32_t step = layout.normalises ? kWarpSize : part.lanes;
    part.first_lane = (lane + step - 1) / step * step;
    lane = part.first_lane + part.heads * part.lanes;
  }
  layout.warps = (lane + kWarpSize - 1) / kWarpSize;
  const std::int64_t warps = layout.tokens * layout.warps;
  nsa::check(warps <= std::numeric_limits<std::uint32_t>::max() / 2, "SplitRope: too many tokens");
  return static_cast<std::uint32_t>(warps);
}

/// Calls body.template operator()<width>(warps) with the widest packs that fit: 16 bytes, 8, or one
/// element.
template <class T, class Body>
void with_packs(SplitLayout<T>& layout, Body&& body) {
  constexpr int kWidest = 16 / sizeof(T);
  if (fits(layout, kWidest)) {
    body.template operator()<kWidest>(set_lanes(layout, kWidest));
  } else if (fits(layout, kWidest / 2)) {
    body.template operator()<kWidest / 2>(set_lanes(layout, kWidest / 2));
  } else {
    body.template operator()<1>(set_lanes(layout, 1));
  }
}

}  // namespace nsa::cuda
