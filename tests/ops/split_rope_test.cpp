#include "ops/split_rope.h"

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "ops/backend.h"
#include "support/gradcheck.h"
#include "support/near.h"

namespace nsa {
namespace {

using test::expect_gradient;
using test::near;
using test::Owned;
using test::OwnedDocuments;
using test::random_normal;
using test::same;

constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kKvHeads = 2;
constexpr std::int64_t kDim = 6;
constexpr std::int64_t kVDim = 5;

struct Case {
  std::string name;
  std::int64_t rotary_dim = 4;
  bool norm = false;
  bool share_kv = false;
  std::array<bool, 3> keys = {true, true, true};
  std::array<bool, 3> values = {true, true, true};
  bool gates = true;
  std::array<bool, 3> rotate = {true, true, true};
  std::vector<std::int64_t> lengths = {1, 0, 40, 13};
};
const Case kCases[] = {
    {.name = "partial"},
    {.name = "unrotated", .rotary_dim = 0},
    {.name = "whole", .rotary_dim = 6, .rotate = {false, true, true}},
    {.name = "normed", .norm = true, .rotate = {false, true, true}},
    {.name = "normed_unrotated", .rotary_dim = 0, .norm = true},
    {.name = "shared", .share_kv = true, .rotate = {false, true, true}},
    {.name = "shared_normed", .norm = true, .share_kv = true, .rotate = {false, true, true}},
    {.name = "keys_that_only_score", .norm = true, .values = {false, true, true}},
    {.name = "dense",
     .norm = true,
     .keys = {true, false, false},
     .values = {true, false, false},
     .gates = false},
    {.name = "window_alone", .keys = {false, false, true}, .values = {false, false, true}},
    {.name = "one_token", .norm = true, .lengths = {1}},
    {.name = "no_tokens", .norm = true, .lengths = {0}},
};

/// Memory of a case's op, forward and backward.
struct Split {
  Case c;
  OwnedDocuments documents;
  std::int64_t tokens = 0, columns = 0;
  Owned q, gates, projection, q_norm, k_norm;
  Owned dq, dgates, dprojection, dq_norm, dk_norm;
  std::array<Owned, 3> k, v, dk, dv;

  Split(const Case& which, DType dtype) : c(which), documents(which.lengths) {
    tokens = Documents(documents).tokens();
    columns = kHeads * kDim + (c.gates ? 3 * kHeads : 0);
    bool key_columns = false;
    bool value_columns = false;
    for (std::size_t i = 0; i < 3; ++i) {
      if (c.keys[i]) {
        k[i] = Owned(dtype, {tokens, kKvHeads, kDim});
        dk[i] = random_normal(dtype, {tokens, kKvHeads, kDim}, 10 + i);
        if (!c.share_kv || !key_columns) columns += kKvHeads * kDim;
        key_columns = true;
      }
      if (c.values[i]) {
        v[i] = Owned(dtype, {tokens, kKvHeads, kVDim});
        dv[i] = random_normal(dtype, {tokens, kKvHeads, kVDim}, 20 + i);
        if (!c.share_kv || !value_columns) columns += kKvHeads * kVDim;
        value_columns = true;
      }
    }
    q = Owned(dtype, {tokens, kHeads, kDim});
    dq = random_normal(dtype, {tokens, kHeads, kDim}, 30);
    if (c.gates) {
      gates = Owned(dtype, {tokens, kHeads, 3});
      dgates = random_normal(dtype, {tokens, kHeads, 3}, 31);
    }
    projection = random_normal(dtype, {tokens, columns}, 32);
    dprojection = random_normal(dtype, {tokens, columns}, 33);
    if (c.norm) {
      q_norm = random_normal(dtype, {kDim}, 34);
      k_norm = random_normal(dtype, {3, kDim}, 35);
      dq_norm = Owned(dtype, {kDim});
      dk_norm = Owned(dtype, {3, kDim});
    }
  }
  SplitRopeForward forward() const {
    SplitRopeForward op = {.q = q,
                           .pairs = {},
                           .gate_logits = gates,
                           .projection = projection,
                           .q_norm = q_norm,
                           .k_norm = k_norm,
                           .norm_eps = 1e-3,
                           .rotate = c.rotate,
                           .share_kv = c.share_kv,
                           .rope = {.rotary_dim = c.rotary_dim, .base = 50.0},
                           .documents = documents};
    for (std::size_t i = 0; i < 3; ++i) op.pairs[i] = {.k = k[i], .v = v[i]};
    return op;
  }
  SplitRopeBackward backward() const {
    SplitRopeBackward op = {.dprojection = dprojection,
                            .dq_norm = dq_norm,
                            .dk_norm = dk_norm,
                            .dq = dq,
                            .dpairs = {},
                            .dgate_logits = dgates,
                            .layout = forward()};
    for (std::size_t i = 0; i < 3; ++i) op.dpairs[i] = {.k = dk[i], .v = dv[i]};
    return op;
  }
  /// sum of outputs times their gradients.
  double objective() const {
    double sum = 0;
    const auto add = [&](const Owned& y, const Owned& dy) {
      for (std::int64_t i = 0; i < y.size() && y.tensor().defined(); ++i) {
        sum += y.get(i) * dy.get(i);
      }
    };
    add(q, dq);
    add(gates, dgates);
    for (std::size_t i = 0; i < 3; ++i) {
      add(k[i], dk[i]);
      add(v[i], dv[i]);
    }
    return sum;
  }
  /// Local position of a token.
  std::int64_t position(std::int64_t token) const {
    std::int64_t begin = 0;
    for (const std::int64_t length : c.lengths) {
      if (token < begin + length) return token - begin;
      begin += length;
    }
    return -1;
  }
};

/// The heads that start at `column`, normalised and turned by the formulas.
Owned reference_heads(const Split& s, std::int64_t column, std::int64_t heads, const Owned* norm,
                      std::int64_t norm_row, std::int64_t rotary_dim) {
  Owned out(DType::kF64, {s.tokens, heads, kDim});
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    for (std::int64_t h = 0; h < heads; ++h) {
      std::array<double, kDim> x{};
      double squares = 0;
      for (std::int64_t c = 0; c < kDim; ++c) {
        x[static_cast<std::size_t>(c)] = s.projection.get(t * s.columns + column + h * kDim + c);
        squares += x[static_cast<std::size_t>(c)] * x[static_cast<std::size_t>(c)];
      }
      for (std::size_t c = 0; c < kDim && norm != nullptr; ++c) {
        x[c] *= norm->get(norm_row * kDim + static_cast<std::int64_t>(c)) /
                std::sqrt(squares / static_cast<double>(kDim) + 1e-3);
      }
      const auto half = static_cast<std::size_t>(rotary_dim / 2);
      for (std::size_t c = 0; c < half; ++c) {
        const double angle =
            static_cast<double>(s.position(t)) *
            std::pow(50.0, -2.0 * static_cast<double>(c) / static_cast<double>(rotary_dim));
        const double first = x[c];
        const double second = x[c + half];
        x[c] = first * std::cos(angle) - second * std::sin(angle);
        x[c + half] = second * std::cos(angle) + first * std::sin(angle);
      }
      for (std::int64_t c = 0; c < kDim; ++c) {
        out.set((t * heads + h) * kDim + c, x[static_cast<std::size_t>(c)]);
      }
    }
  }
  return out;
}

Owned reference_copy(const Split& s, std::int64_t column, std::int64_t size) {
  Owned out(DType::kF64, {s.tokens, size});
  for (std::int64_t i = 0; i < out.size(); ++i) {
    out.set(i, s.projection.get(i / size * s.columns + column + i % size));
  }
  return out;
}

class SplitRope : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Cases, SplitRope, ::testing::ValuesIn(kCases),
                         [](const auto& test) { return test.param.name; });

TEST_P(SplitRope, ForwardIsTheFormulaInBothTypes) {
  const Backend cpu = make_backend("cpu", 2);
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const double tolerance = dtype == DType::kF64 ? 1e-14 : 1e-6;
    const Split s(GetParam(), dtype);
    cpu.ops->run(s.forward());
    const Owned* k_norm = s.c.norm ? &s.k_norm : nullptr;
    EXPECT_TRUE(
        near(s.q, reference_heads(s, 0, kHeads, s.c.norm ? &s.q_norm : nullptr, 0, s.c.rotary_dim),
             tolerance));
    std::int64_t column = kHeads * kDim;
    for (std::size_t i = 0; i < 3; ++i) {
      if (s.c.share_kv) column = kHeads * kDim;
      if (s.c.keys[i]) {
        const auto row = s.c.share_kv ? 0 : static_cast<std::int64_t>(i);
        EXPECT_TRUE(near(
            s.k[i],
            reference_heads(s, column, kKvHeads, k_norm, row, s.c.rotate[i] ? s.c.rotary_dim : 0),
            tolerance))
            << i;
        column += kKvHeads * kDim;
      }
      if (s.c.values[i]) {
        EXPECT_TRUE(near(s.v[i], reference_copy(s, column, kKvHeads * kVDim), 0)) << i;
        column += kKvHeads * kVDim;
      }
    }
    if (!s.c.gates) continue;
    EXPECT_TRUE(near(s.gates, reference_copy(s, column, 3 * kHeads), 0));
  }
}

TEST_P(SplitRope, GradientsAreThoseOfCentralDifferences) {
  const Backend cpu = make_backend("cpu", 2);
  const Split s(GetParam(), DType::kF64);
  const auto objective = [&] {
    cpu.ops->run(s.forward());
    return s.objective();
  };
  cpu.ops->run(s.backward());
  expect_gradient("projection", objective, s.projection, s.dprojection);
  if (s.c.norm) {
    expect_gradient("q_norm", objective, s.q_norm, s.dq_norm);
    expect_gradient("k_norm", objective, s.k_norm, s.dk_norm);
  }
}

TEST_P(SplitRope, FloatAndDoubleGradientsAgree) {
  const Backend cpu = make_backend("cpu", 2);
  const Split single(GetParam(), DType::kF32);
  const Split twice(GetParam(), DType::kF64);
  cpu.ops->run(single.backward());
  cpu.ops->run(twice.backward());
  EXPECT_TRUE(near(single.dprojection, twice.dprojection, 2e-6));
  if (!GetParam().norm) return;
  EXPECT_TRUE(near(single.dq_norm, twice.dq_norm, 2e-6));
  EXPECT_TRUE(near(single.dk_norm, twice.dk_norm, 2e-6));
}

TEST_P(SplitRope, ResultsDoNotDependOnThreads) {
  const Backend one = make_backend("cpu", 1);
  const Backend three = make_backend("cpu", 3);
  Case longer = GetParam();
  longer.lengths.push_back(150);
  const Split a(longer, DType::kF32);
  const Split b(longer, DType::kF32);
  one.ops->run(a.forward());
  three.ops->run(b.forward());
  one.ops->run(a.backward());
  three.ops->run(b.backward());
  EXPECT_TRUE(same(a.q, b.q));
  EXPECT_TRUE(same(a.dprojection, b.dprojection));
  if (!GetParam().norm) return;
  EXPECT_TRUE(same(a.dq_norm, b.dq_norm));
  EXPECT_TRUE(same(a.dk_norm, b.dk_norm));
}

TEST(SplitRopeBackward, AbsentGradientsAreZeros) {
  const Backend cpu = make_backend("cpu", 2);
  for (const Case& c : kCases) {
    const Split zeros(c, DType::kF32);
    const Split absent(c, DType::kF32);
    SplitRopeBackward op = absent.backward();
    zeros.dq.fill(0);
    op.dq = {};
    if (c.gates) zeros.dgates.fill(0);
    op.dgate_logits = {};
    for (std::size_t i = 1; i < 3; ++i) {
      if (c.keys[i]) zeros.dk[i].fill(0);
      if (c.values[i]) zeros.dv[i].fill(0);
      op.dpairs[i] = {};
    }
    cpu.ops->run(zeros.backward());
    cpu.ops->run(op);
    EXPECT_TRUE(same(absent.dprojection, zeros.dprojection)) << c.name;
    if (!c.norm) continue;
    EXPECT_TRUE(same(absent.dk_norm, zeros.dk_norm)) << c.name;
  }
}

TEST(SplitRopeBackward, AddsToTheNormGradients) {
  const Backend cpu = make_backend("cpu", 2);
  const Split fresh(kCases[3], DType::kF64);
  const Split added(kCases[3], DType::kF64);
  added.dq_norm.fill(5);
  added.dk_norm.fill(5);
  cpu.ops->run(fresh.backward());
  cpu.ops->run(added.backward());
  for (std::int64_t i = 0; i < fresh.dk_norm.size(); ++i) {
    EXPECT_NEAR(added.dk_norm.get(i), fresh.dk_norm.get(i) + 5, 1e-12);
  }
  for (std::int64_t i = 0; i < fresh.dq_norm.size(); ++i) {
    EXPECT_NEAR(added.dq_norm.get(i), fresh.dq_norm.get(i) + 5, 1e-12);
  }
}

TEST(SplitRopeForward, SharedPairsMayAlias) {
  const Backend cpu = make_backend("cpu", 3);
  const Case shared = {.name = "", .share_kv = true};
  const Split s(shared, DType::kF32);
  const Split alias(shared, DType::kF32);
  SplitRopeForward op = alias.forward();
  op.pairs[1] = op.pairs[0];
  op.pairs[2] = op.pairs[0];
  cpu.ops->run(s.forward());
  cpu.ops->run(op);
  EXPECT_TRUE(same(alias.k[0], s.k[2]));
  EXPECT_TRUE(same(alias.v[0], s.v[2]));
}

TEST(SplitRopeForward, FarPositionsKeepTheirAngle) {
  // In float, 100000 radians are known to 0.008 only.
  const Backend cpu = make_backend("cpu", 2);
  const Case far = {.name = "", .rotary_dim = 2, .lengths = {100001}};
  const Split s(far, DType::kF32);
  cpu.ops->run(s.forward());
  const std::int64_t row = 100000;
  const double x = s.projection.get(row * s.columns);
  const double y = s.projection.get(row * s.columns + 1);
  EXPECT_NEAR(s.q.get(row * kHeads * kDim), x * std::cos(1e5) - y * std::sin(1e5), 1e-6);
}

TEST(SplitRopeForward, CheckRefusesWhatCannotBe) {
  const Backend cpu = make_backend("cpu", 1);
  const Split s(kCases[0], DType::kF32);
  SplitRopeForward op = s.forward();
  op.rope.rotary_dim = 3;
  EXPECT_THROW(cpu.ops->run(op), Error);
  op = s.forward();
  op.rope.rotary_dim = 8;
  EXPECT_THROW(cpu.ops->run(op), Error);
  op = s.forward();
  op.share_kv = true;  // the projection then has too many columns
  EXPECT_THROW(cpu.ops->run(op), Error);
  op = s.forward();
  op.pairs[1].k = s.v[1];
  EXPECT_THROW(cpu.ops->run(op), Error);
  const OwnedDocuments other({5});
  op = s.forward();
  op.documents = other;
  EXPECT_THROW(cpu.ops->run(op), Error);
}

TEST(SplitRopeBackward, CheckRefusesGradientsWithoutColumns) {
  const Backend cpu = make_backend("cpu", 1);
  const Split s(kCases[7], DType::kF32);
  SplitRopeBackward op = s.backward();
  op.dpairs[0].v = s.dv[1];
  EXPECT_THROW(cpu.ops->run(op), Error);
  op = s.backward();
  op.dk_norm = {};
  EXPECT_THROW(cpu.ops->run(op), Error);
}

}  // namespace
}  // namespace nsa
