#include "ops/split_rope.h"

#include <algorithm>
#include <cmath>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/rope_table.h"
#include "ops/cpu/tiles.h"
#include "ops/cpu/vector_math.h"

namespace nsa::cpu {
namespace {

constexpr std::int64_t kTokensPerPart = 32;
constexpr std::size_t kPairs = 3;

/// Where the columns of the projection stand, and the extents of its heads.
struct Columns {
  std::int64_t heads = 0, kv_heads = 0, dim = 0, v_dim = 0;
  std::array<std::int64_t, kPairs> k{}, v{};
  std::int64_t gates = 0;
  std::int64_t count = 0;

  explicit Columns(const SplitRopeForward& op)
      : heads(op.q.dim(1)), dim(op.q.dim(2)), gates(heads * dim) {
    for (const KvPair& pair : op.pairs) {
      if (pair.k.defined()) kv_heads = pair.k.dim(1);
      if (pair.v.defined()) v_dim = pair.v.dim(2);
      if (pair.v.defined()) kv_heads = pair.v.dim(1);
    }
    const bool any_k = std::any_of(op.pairs.begin(), op.pairs.end(),
                                   [](const KvPair& pair) { return pair.k.defined(); });
    for (std::size_t i = 0; i < kPairs; ++i) {
      if (op.share_kv) {
        k[i] = heads * dim;
        v[i] = k[i] + (any_k ? kv_heads * dim : 0);
        if (op.pairs[i].k.defined()) gates = std::max(gates, k[i] + kv_heads * dim);
        if (op.pairs[i].v.defined()) gates = std::max(gates, v[i] + kv_heads * v_dim);
        continue;
      }
      k[i] = gates;
      v[i] = k[i] + (op.pairs[i].k.defined() ? kv_heads * dim : 0);
      gates = v[i] + (op.pairs[i].v.defined() ? kv_heads * v_dim : 0);
    }
    count = gates + (op.gate_logits.defined() ? heads * 3 : 0);
  }
};

/// The turns of every position up to the longest document: one row a position, shared by all heads
/// and documents.
template <class T>
const T* turn_table(WorkerPool& pool, const SplitRopeForward& op, Scratch::Frame& frame) {
  const std::int64_t half = op.rope.rotary_dim / 2;
  const std::int64_t positions = op.documents.longest();
  auto* frequency = frame.take<double>(half);
  rope_frequencies(op.rope, frequency);
  T* table = frame.take<T>(positions * 2 * half);
  for_each_part(pool, Parts{.count = positions, .size = kTokensPerPart},
                [&](std::int64_t begin, std::int64_t end) {
                  for (std::int64_t p = begin; p < end; ++p) {
                    rope_turn(frequency, half, static_cast<double>(p), table + p * 2 * half);
                  }
                });
  return table;
}

/// Walks the tokens of [begin, end) with their positions: body(token, position).
template <class Body>
void for_each_position(const Documents& documents, std::int64_t begin, std::int64_t end,
                       const Body& body) {
  const auto& bounds = documents.bounds;
  const auto after = std::upper_bound(bounds.begin(), bounds.end(), begin);
  std::int64_t document = after - bounds.begin() - 1;
  for (std::int64_t token = begin; token < end; ++token) {
    while (documents.begin(document + 1) <= token) ++document;
    body(token, token - documents.begin(document));
  }
}

template <class T>
T head_rstd(const T* x, std::int64_t dim, double eps) {
  const double squares = lane_sum<double>(
      dim, [x](std::int64_t c) { return static_cast<double>(x[c]) * static_cast<double>(x[c]); });
  return static_cast<T>(1.0 / std::sqrt(squares / static_cast<double>(dim) + eps));
}

/// How the rows of one tensor of heads are normalised and turned.
template <class T>
struct HeadRule {
  std::int64_t heads = 0;
  std::int64_t dim = 0;
  const T* weight = nullptr;  ///< [dim] of the QK-norm; null: not normalised
  double eps = 0;
  std::int64_t half = 0;  ///< half of the channels that turn
};

/// All heads of one token.
template <class T>
void split_heads(const HeadRule<T>& rule, const T* from, const T* turn, T* to) {
  for (std::int64_t h = 0; h < rule.heads; ++h) {
    const T* x = from + h * rule.dim;
    T* y = to + h * rule.dim;
    if (rule.weight != nullptr) {
      const T rstd = head_rstd(x, rule.dim, rule.eps);
      for (std::int64_t c = 0; c < rule.dim; ++c) y[c] = x[c] * rstd * rule.weight[c];
      rotate_row(y, y, rule.half, turn);
    } else {
      rotate_row(x, y, rule.half, turn);
      std::copy(x + 2 * rule.half, x + rule.dim, y + 2 * rule.half);
    }
  }
}

/// to += from turned back, all heads of one token.
template <class T>
void add_unturned(const HeadRule<T>& rule, const T* from, const T* turn, T* to, T* row) {
  for (std::int64_t h = 0; h < rule.heads; ++h) {
    const T* dy = from + h * rule.dim;
    unrotate_row(dy, row, rule.half, turn);
    std::copy(dy + 2 * rule.half, dy + rule.dim, row + 2 * rule.half);
    add_scaled(to + h * rule.dim, T(1), row, rule.dim);
  }
}

/// Turns the gradient of the normalised heads into that of x, in place; dweight [dim] is added to.
template <class T>
void norm_heads_backward(const HeadRule<T>& rule, const T* from, T* gradient, T* dweight) {
  for (std::int64_t h = 0; h < rule.heads; ++h) {
    const T* x = from + h * rule.dim;
    T* g = gradient + h * rule.dim;
    const T rstd = head_rstd(x, rule.dim, rule.eps);
    const double mean = lane_sum<double>(rule.dim,
                                         [&](std::int64_t c) {
                                           return static_cast<double>(g[c] * rule.weight[c] * x[c]);
                                         }) /
                        static_cast<double>(rule.dim);
    const T along = static_cast<T>(mean * static_cast<double>(rstd) * static_cast<double>(rstd));
    for (std::int64_t c = 0; c < rule.dim; ++c) {
      dweight[c] += g[c] * x[c] * rstd;
      g[c] = rstd * (g[c] * rule.weight[c] - x[c] * along);
    }
  }
}

/// What both directions know of an op in one element type.
template <class T>
struct Split {
  const SplitRopeForward& op;
  Columns columns;
  const T* table;

  HeadRule<T> rule_q() const {
    return {.heads = columns.heads,
            .dim = columns.dim,
            .weight = op.q_norm.defined() ? op.q_norm.as<T>() : nullptr,
            .eps = op.norm_eps,
            .half = op.rope.rotary_dim / 2};
  }
  HeadRule<T> rule_k(std::size_t pair) const {
    return {
        .heads = columns.kv_heads,
        .dim = columns.dim,
        .weight = op.q_norm.defined() ? op.k_norm.as<T>() + norm_row(pair) * columns.dim : nullptr,
        .eps = op.norm_eps,
        .half = op.rotate[pair] ? op.rope.rotary_dim / 2 : 0};
  }
  std::int64_t norm_row(std::size_t pair) const {
    return op.share_kv ? 0 : static_cast<std::int64_t>(pair);
  }
  const T* turn(std::int64_t position) const { return table + position * op.rope.rotary_dim; }
};

template <class T>
void split_token(const Split<T>& split, std::int64_t token, std::int64_t position) {
  const Columns& columns = split.columns;
  const SplitRopeForward& op = split.op;
  const T* from = op.projection.as<T>() + token * columns.count;
  const T* turn = split.turn(position);
  split_heads(split.rule_q(), from, turn, op.q.as<T>() + token * columns.heads * columns.dim);
  const std::int64_t k_size = columns.kv_heads * columns.dim;
  const std::int64_t v_size = columns.kv_heads * columns.v_dim;
  for (std::size_t i = 0; i < kPairs; ++i) {
    const KvPair& pair = op.pairs[i];
    if (pair.k.defined()) {
      split_heads(split.rule_k(i), from + columns.k[i], turn, pair.k.as<T>() + token * k_size);
    }
    if (pair.v.defined()) {
      std::copy_n(from + columns.v[i], v_size, pair.v.as<T>() + token * v_size);
    }
  }
  if (op.gate_logits.defined()) {
    const std::int64_t gates = columns.heads * 3;
    std::copy_n(from + columns.gates, gates, op.gate_logits.as<T>() + token * gates);
  }
}

/// One token's row of dprojection. `dnorms` [4, dim]: q's weight, then k's rows; `row` [dim] is
/// room for one head.
template <class T>
void join_token(const SplitRopeBackward& op, const Split<T>& split, std::int64_t token,
                const T* turn, T* dnorms, T* row) {
  const Columns& columns = split.columns;
  const std::int64_t dim = columns.dim;
  const std::int64_t k_size = columns.kv_heads * dim;
  const std::int64_t v_size = columns.kv_heads * columns.v_dim;
  const bool norm = op.layout.q_norm.defined();
  const T* x = norm ? op.layout.projection.as<T>() + token * columns.count : nullptr;
  T* to = op.dprojection.as<T>() + token * columns.count;
  std::fill_n(to, columns.count, T(0));
  if (op.dq.defined()) {
    const HeadRule<T> rule = split.rule_q();
    add_unturned(rule, op.dq.as<T>() + token * columns.heads * dim, turn, to, row);
    if (norm) norm_heads_backward(rule, x, to, dnorms);
  }
  bool k_given = false;
  for (std::size_t i = 0; i < kPairs; ++i) {
    const KvPair& pair = op.dpairs[i];
    const std::int64_t at = columns.k[i];
    if (pair.k.defined()) {
      add_unturned(split.rule_k(i), pair.k.as<T>() + token * k_size, turn, to + at, row);
      k_given = true;
    }
    if (pair.v.defined()) {
      add_scaled(to + columns.v[i], T(1), pair.v.as<T>() + token * v_size, v_size);
    }
    // Shared keys are one tensor: its norm goes backward once, when all gradients are summed.
    if (norm && k_given && (!op.layout.share_kv || i + 1 == kPairs)) {
      norm_heads_backward(split.rule_k(i), x + at, to + at, dnorms + (1 + split.norm_row(i)) * dim);
    }
    if (!op.layout.share_kv) k_given = false;
  }
  if (op.dgate_logits.defined()) {
    const std::int64_t gates = columns.heads * 3;
    std::copy_n(op.dgate_logits.as<T>() + token * gates, gates, to + columns.gates);
  }
}

}  // namespace

void CpuOps::apply(const SplitRopeForward& op) {
  const Parts parts = {.count = op.projection.dim(0), .size = kTokensPerPart};
  with_float(op.projection.dtype(), [&]<class T>() {
    Scratch::Frame frame(scratch(0));
    const Split<T> split = {op, Columns(op), turn_table<T>(pool_, op, frame)};
    for_each_part(pool_, parts, [&](std::int64_t begin, std::int64_t end) {
      for_each_position(op.documents, begin, end, [&](std::int64_t token, std::int64_t position) {
        split_token(split, token, position);
      });
    });
  });
}

void CpuOps::apply(const SplitRopeBackward& op) {
  const Parts parts = {.count = op.dprojection.dim(0), .size = kTokensPerPart};
  const SplitRopeForward& layout = op.layout;
  const std::int64_t dim = layout.q.dim(2);
  with_float(op.dprojection.dtype(), [&]<class T>() {
    Scratch::Frame frame(scratch(0));
    const Split<T> split = {layout, Columns(layout), turn_table<T>(pool_, layout, frame)};
    const std::int64_t norms = 4 * dim;
    T* dnorms = frame.take<T>(layout.q_norm.defined() ? parts.parts() * norms : 0);
    pool_.for_each(parts.parts(), [&](std::int64_t part, int worker) {
      Scratch::Frame own(scratch(worker));
      T* row = own.take<T>(dim);
      T* dnorm = nullptr;
      if (layout.q_norm.defined()) {
        dnorm = dnorms + part * norms;
        std::fill_n(dnorm, norms, T(0));
      }
      for_each_position(layout.documents, parts.begin(part), parts.end(part),
                        [&](std::int64_t token, std::int64_t position) {
                          join_token(op, split, token, split.turn(position), dnorm, row);
                        });
    });
    if (!layout.q_norm.defined()) return;
    T* sums = frame.take<T>(norms);
    std::fill_n(sums, norms, T(0));
    add_partials(pool_, dnorms, parts.parts(), norms, sums);
    add_scaled(op.dq_norm.as<T>(), T(1), sums, dim);
    add_scaled(op.dk_norm.as<T>(), T(1), sums + dim, op.dk_norm.size());
  });
}

}  // namespace nsa::cpu
