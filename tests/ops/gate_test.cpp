#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "ops/backend.h"
#include "support/gradcheck.h"
#include "support/near.h"
#include "support/owned.h"

namespace nsa::test {
namespace {

constexpr std::int64_t kTokens = 150;  // more than two chunks of the CPU op
constexpr std::int64_t kHeads = 3;
constexpr std::int64_t kDim = 5;

/// Inputs and results of one gate, with the branches that `present` names.
struct GateCase {
  GateCase(DType dtype, std::array<bool, 3> present)
      : logits(random_normal(dtype, {kTokens, kHeads, 3}, 1)),
        bias(random_normal(dtype, {3 * kHeads}, 2)),
        dout(random_normal(dtype, {kTokens, kHeads, kDim}, 3)),
        out(dtype, {kTokens, kHeads, kDim}),
        gates(dtype, {kTokens, kHeads, 3}),
        dlogits(dtype, {kTokens, kHeads, 3}),
        dbias(dtype, {3 * kHeads}),
        deltas(dtype, {kTokens, kHeads, 3}) {
    for (std::size_t b = 0; b < 3; ++b) {
      if (present[b]) branches[b] = random_normal(dtype, {kTokens, kHeads, kDim}, 10 + b);
    }
  }
  std::array<Tensor, 3> tensors() const {
    return {branches[0].tensor(), branches[1].tensor(), branches[2].tensor()};
  }
  void forward(Ops& ops) const {
    ops.run(GateCombineForward{
        .out = out, .gates = gates, .branches = tensors(), .logits = logits, .bias = bias});
  }
  void backward(Ops& ops) const {
    ops.run(GateBackward{.dlogits = dlogits,
                         .dbias = dbias,
                         .deltas = deltas,
                         .dout = dout,
                         .branches = tensors(),
                         .gates = gates});
  }
  double objective(Ops& ops) const {
    forward(ops);
    double sum = 0;
    for (std::int64_t i = 0; i < out.size(); ++i) sum += out.get(i) * dout.get(i);
    return sum;
  }

  std::array<Owned, 3> branches;
  Owned logits, bias, dout, out, gates, dlogits, dbias, deltas;
};

double branch_value(const Owned& branch, std::int64_t i) {
  return branch.tensor().defined() ? branch.get(i) : 0.0;
}

TEST(Gate, MixesTheBranchesBySigmoidOfLogitPlusBias) {
  Backend backend = make_backend("cpu", 2);
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const GateCase c(dtype, {true, false, true});
    c.forward(*backend.ops);
    Owned expected(dtype, {kTokens, kHeads, kDim});
    Owned expected_gates(dtype, {kTokens, kHeads, 3});
    for (std::int64_t row = 0; row < kTokens * kHeads; ++row) {
      for (std::int64_t b = 0; b < 3; ++b) {
        const double logit = c.logits.get(row * 3 + b) + c.bias.get(row % kHeads * 3 + b);
        expected_gates.set(row * 3 + b, 1 / (1 + std::exp(-logit)));
      }
      for (std::int64_t i = row * kDim; i < (row + 1) * kDim; ++i) {
        double sum = 0;
        for (std::int64_t b = 0; b < 3; ++b) {
          sum += expected_gates.get(row * 3 + b) *
                 branch_value(c.branches[static_cast<std::size_t>(b)], i);
        }
        expected.set(i, sum);
      }
    }
    const double tolerance = dtype == DType::kF64 ? 1e-14 : 1e-6;
    EXPECT_TRUE(near(c.out, expected, tolerance));
    EXPECT_TRUE(near(c.gates, expected_gates, tolerance));
  }
}

TEST(Gate, StaysFiniteFarOutOnTheSigmoid) {
  Backend backend = make_backend("cpu", 1);
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const GateCase c(dtype, {true, true, true});
    c.logits.fill(-1000);
    c.objective(*backend.ops);
    c.backward(*backend.ops);
    for (std::int64_t i = 0; i < c.gates.size(); ++i) {
      ASSERT_EQ(c.gates.get(i), 0.0);
      ASSERT_EQ(c.dlogits.get(i), 0.0);
    }
    c.logits.fill(1000);
    c.forward(*backend.ops);
    for (std::int64_t i = 0; i < c.gates.size(); ++i) ASSERT_EQ(c.gates.get(i), 1.0);
  }
}

TEST(Gate, GradientsPassCentralDifferencesForEverySubsetOfBranches) {
  Backend backend = make_backend("cpu", 2);
  for (unsigned subset = 1; subset < 8; ++subset) {
    const GateCase c(DType::kF64, {(subset & 1U) != 0, (subset & 2U) != 0, (subset & 4U) != 0});
    const auto objective = [&] { return c.objective(*backend.ops); };
    objective();
    c.backward(*backend.ops);
    expect_gradient("logits", objective, c.logits, c.dlogits, 150);
    expect_gradient("bias", objective, c.bias, c.dbias);
  }
}

TEST(Gate, DeltasAreGateTimesTheProductWithTheBranchAndZeroForAbsentOnes) {
  Backend backend = make_backend("cpu", 2);
  const GateCase c(DType::kF64, {false, true, true});
  c.forward(*backend.ops);
  c.backward(*backend.ops);
  for (std::int64_t row = 0; row < kTokens * kHeads; ++row) {
    for (std::int64_t b = 0; b < 3; ++b) {
      double product = 0;
      for (std::int64_t i = row * kDim; i < (row + 1) * kDim; ++i) {
        product += c.dout.get(i) * branch_value(c.branches[static_cast<std::size_t>(b)], i);
      }
      const double delta = c.gates.get(row * 3 + b) * product;
      ASSERT_NEAR(c.deltas.get(row * 3 + b), delta, 1e-13);
      if (b == 0) {
        ASSERT_EQ(c.dlogits.get(row * 3), 0.0);
      }
    }
  }
}

TEST(Gate, BiasGradientIsAddedToWhatWasThere) {
  Backend backend = make_backend("cpu", 2);
  const GateCase c(DType::kF64, {true, true, true});
  c.forward(*backend.ops);
  c.backward(*backend.ops);
  const std::vector<double> once = c.dbias.values();
  c.backward(*backend.ops);
  for (std::int64_t i = 0; i < c.dbias.size(); ++i) {
    EXPECT_DOUBLE_EQ(c.dbias.get(i), 2 * once[static_cast<std::size_t>(i)]);
  }
}

TEST(Gate, ResultsDoNotDependOnTheNumberOfThreads) {
  Backend one = make_backend("cpu", 1);
  Backend three = make_backend("cpu", 3);
  const GateCase a(DType::kF32, {true, true, true});
  const GateCase b(DType::kF32, {true, true, true});
  a.forward(*one.ops);
  a.backward(*one.ops);
  b.forward(*three.ops);
  b.backward(*three.ops);
  EXPECT_TRUE(same(a.out, b.out));
  EXPECT_TRUE(same(a.deltas, b.deltas));
  EXPECT_TRUE(same(a.dlogits, b.dlogits));
  EXPECT_TRUE(same(a.dbias, b.dbias));
}

TEST(Gate, RefusesABranchOfAnotherShape) {
  Backend backend = make_backend("cpu", 1);
  GateCase c(DType::kF32, {true, true, true});
  c.branches[2] = Owned(DType::kF32, {kTokens, kHeads, kDim + 1});
  EXPECT_THROW(c.forward(*backend.ops), Error);
  EXPECT_THROW(c.backward(*backend.ops), Error);
}

}  // namespace
}  // namespace nsa::test
