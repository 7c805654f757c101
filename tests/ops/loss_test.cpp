#include "ops/loss.h"

#include <cmath>

#include <gtest/gtest.h>

#include "core/batch.h"
#include "ops/backend.h"
#include "support/gradcheck.h"
#include "support/near.h"

namespace nsa {
namespace {

using test::expect_gradient;
using test::near;
using test::Owned;
using test::random_normal;
using test::same;

constexpr double kZLoss = 0.03;
constexpr double kGradScale = 0.25;

/// A problem with every third target ignored, and the results of one run.
struct Head {
  Owned loss, token_loss, dx, dweight, x, weight, targets, logits;
  Head(DType dtype, std::int64_t rows, std::int64_t chunk, std::int64_t dim = 9,
       std::int64_t vocabulary = 37)
      : loss(DType::kF64, {2}),
        token_loss(dtype, {rows}),
        dx(dtype, {rows, dim}),
        dweight(dtype, {vocabulary, dim}),
        x(random_normal(dtype, {rows, dim}, 1)),
        weight(random_normal(dtype, {vocabulary, dim}, 2, 0.5)),
        targets(DType::kI32, {rows}),
        logits(dtype, {chunk, vocabulary}) {
    for (std::int64_t r = 0; r < rows; ++r) {
      targets.set(r, r % 3 == 2 ? kIgnoredTarget : static_cast<double>(r * 5 % vocabulary));
    }
    token_loss.fill(99);
    dx.fill(99);
  }
  LinearCrossEntropy op(bool gradients = true) const {
    LinearCrossEntropy op = {.loss = loss,
                             .token_loss = token_loss,
                             .dx = {},
                             .dweight = {},
                             .x = x,
                             .weight = weight,
                             .targets = targets,
                             .logits = logits,
                             .z_loss = kZLoss,
                             .grad_scale = kGradScale};
    if (gradients) {
      op.dx = dx;
      op.dweight = dweight;
    }
    return op;
  }
};

struct RowLoss {
  double ce = 0, z = 0;
};
RowLoss reference(const Head& h, std::int64_t row) {
  const auto target = static_cast<std::int64_t>(h.targets.get(row));
  if (target < 0) return {};
  const std::int64_t dim = h.x.tensor().dim(1);
  double sum = 0;
  double at_target = 0;
  for (std::int64_t c = 0; c < h.weight.tensor().dim(0); ++c) {
    double logit = 0;
    for (std::int64_t i = 0; i < dim; ++i)
      logit += h.x.get(row * dim + i) * h.weight.get(c * dim + i);
    sum += std::exp(logit);
    if (c == target) at_target = logit;
  }
  const double lse = std::log(sum);
  return {.ce = lse - at_target, .z = kZLoss * lse * lse};
}

TEST(LinearCrossEntropy, LossesAreTheFormulaInBothTypes) {
  const Backend cpu = make_backend("cpu", 2);
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const double tolerance = dtype == DType::kF64 ? 1e-13 : 1e-6;
    const Head h(dtype, 200, 90);
    cpu.ops->run(h.op());
    RowLoss total;
    const Owned token_loss(DType::kF64, {200});
    for (std::int64_t r = 0; r < 200; ++r) {
      const RowLoss row = reference(h, r);
      token_loss.set(r, row.ce);
      total.ce += row.ce;
      total.z += row.z;
    }
    EXPECT_TRUE(near(h.token_loss, token_loss, tolerance));
    EXPECT_NEAR(h.loss.get(0), total.ce, tolerance * total.ce);
    EXPECT_NEAR(h.loss.get(1), total.z, tolerance * total.z);
  }
}

TEST(LinearCrossEntropy, GradientsAreThoseOfCentralDifferences) {
  const Backend cpu = make_backend("cpu", 2);
  const Head h(DType::kF64, 7, 3, 5, 11);
  const auto objective = [&] {
    h.loss.fill(0);
    cpu.ops->run(h.op(false));
    return kGradScale * (h.loss.get(0) + h.loss.get(1));
  };
  cpu.ops->run(h.op());
  expect_gradient("x", objective, h.x, h.dx);
  expect_gradient("weight", objective, h.weight, h.dweight);
}

TEST(LinearCrossEntropy, AddsToLossAndWeightGradient) {
  const Backend cpu = make_backend("cpu", 2);
  const Head once(DType::kF64, 20, 8);
  const Head twice(DType::kF64, 20, 8);
  cpu.ops->run(once.op());
  cpu.ops->run(twice.op());
  cpu.ops->run(twice.op());
  for (std::int64_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(twice.loss.get(i), 2 * once.loss.get(i), 1e-12);
  }
  for (std::int64_t i = 0; i < once.dweight.size(); ++i) {
    ASSERT_NEAR(twice.dweight.get(i), 2 * once.dweight.get(i), 1e-12);
  }
  EXPECT_TRUE(same(twice.dx, once.dx));
}

TEST(LinearCrossEntropy, EvaluationGivesTheSameLosses) {
  const Backend cpu = make_backend("cpu", 2);
  const Head training(DType::kF32, 100, 64);
  const Head evaluation(DType::kF32, 100, 64);
  cpu.ops->run(training.op());
  cpu.ops->run(evaluation.op(false));
  EXPECT_TRUE(same(evaluation.loss, training.loss));
  EXPECT_TRUE(same(evaluation.token_loss, training.token_loss));
}

TEST(LinearCrossEntropy, ChunksChangeNothingButRounding) {
  const Backend cpu = make_backend("cpu", 2);
  const Head small(DType::kF64, 150, 1);
  const Head large(DType::kF64, 150, 400);
  cpu.ops->run(small.op());
  cpu.ops->run(large.op());
  EXPECT_TRUE(near(small.loss, large.loss, 1e-13));
  EXPECT_TRUE(near(small.dx, large.dx, 1e-13));
  EXPECT_TRUE(near(small.dweight, large.dweight, 1e-13));
}

TEST(LinearCrossEntropy, IgnoredRowsYieldNothing) {
  const Backend cpu = make_backend("cpu", 2);
  const Head h(DType::kF32, 70, 32);
  h.targets.fill(kIgnoredTarget);
  cpu.ops->run(h.op());
  for (const Owned* zero : {&h.loss, &h.token_loss, &h.dx, &h.dweight}) {
    for (std::int64_t i = 0; i < zero->size(); ++i) ASSERT_EQ(zero->get(i), 0);
  }
}

TEST(LinearCrossEntropy, FarLogitsStayFinite) {
  const Backend cpu = make_backend("cpu", 1);
  const Head h(DType::kF32, 1, 1, 1, 2);
  h.x.fill(1);
  h.weight.assign({5000, -5000});
  h.targets.fill(1);
  cpu.ops->run(h.op());
  EXPECT_EQ(h.loss.get(0), 10000);
  EXPECT_TRUE(std::isfinite(h.dx.get(0)));
}

TEST(LinearCrossEntropy, NoRowsAreLegal) {
  const Backend cpu = make_backend("cpu", 2);
  const Head h(DType::kF32, 0, 4);
  cpu.ops->run(h.op());
  EXPECT_EQ(h.loss.get(0), 0);
}

TEST(LinearCrossEntropy, FloatAndDoubleGradientsAgree) {
  const Backend cpu = make_backend("cpu", 2);
  const Head single(DType::kF32, 130, 64, 40, 500);
  const Head twice(DType::kF64, 130, 64, 40, 500);
  cpu.ops->run(single.op());
  cpu.ops->run(twice.op());
  EXPECT_TRUE(near(single.dx, twice.dx, 2e-6));
  EXPECT_TRUE(near(single.dweight, twice.dweight, 2e-6));
}

TEST(LinearCrossEntropy, ResultsDoNotDependOnThreads) {
  const Backend one = make_backend("cpu", 1);
  const Backend three = make_backend("cpu", 3);
  const Head a(DType::kF32, 300, 128, 64, 700);
  const Head b(DType::kF32, 300, 128, 64, 700);
  one.ops->run(a.op());
  three.ops->run(b.op());
  EXPECT_TRUE(same(a.loss, b.loss));
  EXPECT_TRUE(same(a.dx, b.dx));
  EXPECT_TRUE(same(a.dweight, b.dweight));
}

TEST(LinearCrossEntropy, CheckWantsBothGradientsOrNone) {
  const Backend cpu = make_backend("cpu", 1);
  const Head h(DType::kF32, 4, 4);
  LinearCrossEntropy op = h.op();
  op.dweight = {};
  EXPECT_THROW(cpu.ops->run(op), Error);
}

TEST(LinearCrossEntropy, CheckRefusesWrongShapes) {
  const Backend cpu = make_backend("cpu", 1);
  const Head h(DType::kF32, 4, 4);
  LinearCrossEntropy op = h.op();
  op.logits = h.x;
  EXPECT_THROW(cpu.ops->run(op), Error);
  op = h.op();
  op.loss = h.token_loss;
  EXPECT_THROW(cpu.ops->run(op), Error);
  op = h.op();
  op.targets = h.token_loss;
  EXPECT_THROW(cpu.ops->run(op), Error);
}

}  // namespace
}  // namespace nsa
