#pragma once

// One attention problem with random contents, the ops that run on it, and the definition they are
// held against: softmax over an explicit list of keys, written from the formulas alone.

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "ops/backend.h"
#include "support/owned.h"

namespace nsa::test {

struct AttentionCase {
  std::string name;
  std::vector<std::int64_t> lengths = {37};
  std::int64_t heads = 4, kv_heads = 1, head_dim = 8, v_dim = 8;
  NsaGeometry geometry{.rate = 4,
                       .overlap = 2,
                       .select_block = 16,
                       .top_n = 4,
                       .initial = 1,
                       .local = 2,
                       .window = 11};
  DType dtype = DType::kF64;

  std::int64_t tokens() const {
    std::int64_t sum = 0;
    for (const std::int64_t length : lengths) sum += length;
    return sum;
  }
  std::int64_t group() const { return heads / kv_heads; }
  double scale() const { return 1.0 / std::sqrt(static_cast<double>(head_dim)); }
  /// Compressed blocks of a document, counted one by one.
  std::int64_t compressed(std::int64_t length) const {
    const std::int64_t block = geometry.rate == 1 ? 1 : geometry.overlap * geometry.rate;
    std::int64_t count = 0;
    while (count * geometry.rate + block <= length) ++count;
    return count;
  }
  std::int64_t compressed_rows() const {
    std::int64_t sum = 0;
    for (const std::int64_t length : lengths) sum += compressed(length);
    return sum;
  }
  std::int64_t longest_blocks() const {
    std::int64_t most = 0;
    for (const std::int64_t length : lengths) most = std::max(most, length);
    return (most + geometry.select_block - 1) / geometry.select_block;
  }
};

/// Names the case in the output of a parameterised test.
inline std::ostream& operator<<(std::ostream& out, const AttentionCase& c) {
  return out << c.name;
}

enum class Kind { kDense, kWindowed, kSelected, kCompressed };

/// Rows of k that each query of each KV head sees: lists[token * kv_heads + kv_head].
using KeyLists = std::vector<std::vector<std::int64_t>>;

inline KeyLists key_lists(const AttentionCase& c, Kind kind, const Owned& blocks) {
  KeyLists lists;
  const NsaGeometry& g = c.geometry;
  const std::int64_t block = g.rate == 1 ? 1 : g.overlap * g.rate;
  std::int64_t token = 0;
  std::int64_t compressed = 0;
  for (const std::int64_t length : c.lengths) {
    for (std::int64_t t = 0; t < length; ++t) {
      for (std::int64_t head = 0; head < c.kv_heads; ++head) {
        std::vector<std::int64_t> list;
        const auto is_selected = [&](std::int64_t s) {
          const std::int64_t block_of_key = s / g.select_block;
          for (std::int64_t slot = 0; slot < g.top_n; ++slot) {
            const std::int64_t row = (token + t) * c.kv_heads + head;
            if (blocks.get(row * g.top_n + slot) == static_cast<double>(block_of_key)) {
              return true;
            }
          }
          return false;
        };
        if (kind == Kind::kCompressed) {
          for (std::int64_t i = 0; i < c.compressed(length); ++i) {
            if (i * g.rate + block - 1 <= t) list.push_back(compressed + i);
          }
        } else {
          for (std::int64_t s = 0; s <= t; ++s) {
            if (kind == Kind::kWindowed && t - s >= g.window) continue;
            if (kind == Kind::kSelected && !is_selected(s)) continue;
            list.push_back(token + s);
          }
        }
        lists.push_back(list);
      }
    }
    token += length;
    compressed += c.compressed(length);
  }
  return lists;
}

/// Everything one problem reads and writes.
struct AttentionData {
  AttentionData(const AttentionCase& c, Kind kind, std::uint64_t seed = 1)
      : rows(kind == Kind::kCompressed ? c.compressed_rows() : c.tokens()),
        q(random_normal(c.dtype, {c.tokens(), c.heads, c.head_dim}, seed)),
        k(random_normal(c.dtype, {rows, c.kv_heads, c.head_dim}, seed + 1)),
        v(random_normal(c.dtype, {rows, c.kv_heads, c.v_dim}, seed + 2)),
        dout(random_normal(c.dtype, {c.tokens(), c.heads, c.v_dim}, seed + 3)),
        gates(random_normal(c.dtype, {c.tokens(), c.heads, 3}, seed + 4, 0.3)),
        out(c.dtype, {c.tokens(), c.heads, c.v_dim}),
        lse(c.dtype, {c.tokens(), c.heads}),
        deltas(c.dtype, {c.tokens(), c.heads, 3}),
        dq(c.dtype, {c.tokens(), c.heads, c.head_dim}),
        dk(c.dtype, {rows, c.kv_heads, c.head_dim}),
        dv(c.dtype, {rows, c.kv_heads, c.v_dim}),
        blocks(DType::kI32, {c.tokens(), c.kv_heads, c.geometry.top_n}) {
    // What must be overwritten starts as something that would be noticed.
    for (const Owned& written : {out, lse, dq, dk, dv}) written.fill(777);
    blocks.fill(777);
  }

  std::int64_t rows;
  Owned q, k, v, dout, gates, out, lse, deltas, dq, dk, dv, blocks;
};

/// A backend with more threads than most machines that run this have cores to spare.
inline Ops& ops(int threads = 2) {
  static Backend one = make_backend("cpu", 1);
  static Backend two = make_backend("cpu", 2);
  static Backend three = make_backend("cpu", 3);
  return *(threads == 1 ? one : threads == 2 ? two : three).ops;
}

/// Fills `d.blocks` by the scores of other random compressed keys.
inline void choose(const AttentionCase& c, const AttentionData& d, std::uint64_t seed = 50) {
  AttentionData scored(c, Kind::kCompressed, seed);
  ops().run(CompressedSelectForward{.out = {},
                                    .lse = scored.lse,
                                    .blocks = d.blocks,
                                    .importance = {},
                                    .q = scored.q,
                                    .k = scored.k,
                                    .v = {},
                                    .scale = c.scale(),
                                    .geometry = c.geometry,
                                    .documents = OwnedDocuments(c.lengths)});
}

/// out and lse. For the compressed branch no selection is asked for.
inline void forward(const AttentionCase& c, Kind kind, const AttentionData& d, Ops& on = ops()) {
  const OwnedDocuments documents(c.lengths);
  if (kind == Kind::kDense) {
    on.run(DenseAttentionForward{d.out, d.lse, d.q, d.k, d.v, c.scale(), documents});
  } else if (kind == Kind::kWindowed) {
    on.run(WindowAttentionForward{d.out, d.lse, d.q, d.k, d.v, c.scale(), c.geometry, documents});
  } else if (kind == Kind::kSelected) {
    on.run(SelectedAttentionForward{d.out, d.lse, d.blocks, d.q, d.k, d.v, c.scale(), c.geometry,
                                    documents});
  } else {
    on.run(CompressedSelectForward{.out = d.out,
                                   .lse = d.lse,
                                   .blocks = {},
                                   .importance = {},
                                   .q = d.q,
                                   .k = d.k,
                                   .v = d.v,
                                   .scale = c.scale(),
                                   .geometry = c.geometry,
                                   .documents = documents});
  }
}

inline int branch_of(Kind kind) {
  return kind == Kind::kCompressed ? kCompressed : kind == Kind::kSelected ? kSelected : kWindow;
}

/// The gradients of sum(gate * dout * out), or of sum(dout * out) for the dense op, after
/// forward().
inline void backward(const AttentionCase& c, Kind kind, const AttentionData& d,
                     bool accumulate = false, Ops& on = ops()) {
  const OwnedDocuments documents(c.lengths);
  if (kind == Kind::kDense) {
    on.run(DenseAttentionBackward{d.dq, d.dk, d.dv, d.q, d.k, d.v, d.out, d.lse, d.dout, c.scale(),
                                  documents});
    return;
  }
  d.deltas.fill(
      std::numeric_limits<double>::quiet_NaN());  // Of the other branches: not to be read.
  for (std::int64_t row = 0; row < c.tokens() * c.heads; ++row) {
    double e = 0;
    for (std::int64_t i = 0; i < c.v_dim; ++i) {
      e += d.dout.get(row * c.v_dim + i) * d.out.get(row * c.v_dim + i);
    }
    d.deltas.set(row * 3 + branch_of(kind), d.gates.get(row * 3 + branch_of(kind)) * e);
  }
  const BranchGradients gradients{d.dq,       d.dk,      d.dv,       d.q,      d.k,
                                  d.v,        d.lse,     d.dout,     d.gates,  d.deltas,
                                  accumulate, c.scale(), c.geometry, documents};
  if (kind == Kind::kWindowed) on.run(WindowAttentionBackward{gradients});
  if (kind == Kind::kCompressed) on.run(CompressedAttentionBackward{gradients});
  if (kind == Kind::kSelected) on.run(SelectedAttentionBackward{gradients, d.blocks});
}

/// What backward() differentiates.
inline double objective(const AttentionCase& c, Kind kind, const AttentionData& d) {
  forward(c, kind, d);
  double sum = 0;
  for (std::int64_t i = 0; i < d.out.size(); ++i) {
    const double gate = kind == Kind::kDense ? 1.0 : d.gates.get(i / c.v_dim * 3 + branch_of(kind));
    sum += gate * d.dout.get(i) * d.out.get(i);
  }
  return sum;
}

/// The definition: softmax(scale * q.k) over the listed keys, and its mean of v.
inline void define(const AttentionCase& c, const AttentionData& d, const KeyLists& lists,
                   const Owned& out, const Owned& lse) {
  for (std::int64_t row = 0; row < c.tokens() * c.heads; ++row) {
    const std::int64_t head = row % c.heads / c.group();
    const auto& keys = lists[static_cast<std::size_t>(row / c.heads * c.kv_heads + head)];
    std::vector<double> p;
    double total = 0;
    for (const std::int64_t key : keys) {
      double s = 0;
      for (std::int64_t i = 0; i < c.head_dim; ++i) {
        s += d.q.get(row * c.head_dim + i) * d.k.get((key * c.kv_heads + head) * c.head_dim + i);
      }
      p.push_back(std::exp(c.scale() * s));
      total += p.back();
    }
    lse.set(row, keys.empty() ? -std::numeric_limits<double>::infinity() : std::log(total));
    for (std::int64_t i = 0; i < c.v_dim; ++i) {
      double sum = 0;
      for (std::size_t n = 0; n < keys.size(); ++n) {
        sum += p[n] / total * d.v.get((keys[n] * c.kv_heads + head) * c.v_dim + i);
      }
      out.set(row * c.v_dim + i, sum);
    }
  }
}

/// Shapes that a tiled implementation gets wrong first.
inline std::vector<AttentionCase> hard_cases() {
  std::vector<AttentionCase> cases;
  const auto add = [&](const char* name, const std::function<void(AttentionCase&)>& change) {
    cases.emplace_back();
    cases.back().name = name;
    change(cases.back());
  };
  add("one_document", [](AttentionCase&) {});
  add("packed_with_empty", [](AttentionCase& c) { c.lengths = {1, 5, 37, 40, 0, 11}; });
  add("one_token", [](AttentionCase& c) { c.lengths = {1}; });
  add("shorter_than_a_compressed_block", [](AttentionCase& c) { c.lengths = {7}; });
  add("one_head_a_group", [](AttentionCase& c) {
    c.heads = c.kv_heads = 3;
    c.lengths = {70, 9};
  });
  add("two_heads_a_group", [](AttentionCase& c) {
    c.kv_heads = 2;
    c.lengths = {41, 50};
  });
  add("sixteen_heads_a_group", [](AttentionCase& c) { c.heads = 16; });
  add("values_wider_than_keys", [](AttentionCase& c) {
    c.head_dim = 6;
    c.v_dim = 10;
    c.kv_heads = 2;
  });
  add("many_tiles", [](AttentionCase& c) {
    c.lengths = {300, 130};
    c.head_dim = c.v_dim = 4;
    c.geometry.window = 150;
  });
  add("many_steps", [](AttentionCase& c) {
    c.lengths = {450};
    c.heads = 2;
    c.head_dim = c.v_dim = 4;
    c.geometry.rate = 1;
    c.geometry.window = 420;
  });
  add("no_overlap", [](AttentionCase& c) {
    c.geometry.overlap = 1;
    c.geometry.rate = 8;
    c.lengths = {100};
  });
  add("window_of_one", [](AttentionCase& c) { c.geometry.window = 1; });
  return cases;
}

}  // namespace nsa::test
