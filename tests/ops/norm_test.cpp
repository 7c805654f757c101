#include "ops/norm.h"

#include <cmath>

#include <gtest/gtest.h>

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

constexpr double kEps = 1e-3;

struct Norm {
  Owned y, rstd, residual_out, residual, delta, weight;
  Norm(DType dtype, std::int64_t rows, std::int64_t dim)
      : y(dtype, {rows, dim}),
        rstd(dtype, {rows}),
        residual_out(dtype, {rows, dim}),
        residual(random_normal(dtype, {rows, dim}, 1)),
        delta(random_normal(dtype, {rows, dim}, 2)),
        weight(random_normal(dtype, {dim}, 3)) {}
  ResidualNormForward forward(bool with_delta = true) const {
    ResidualNormForward op = {.y = y,
                              .rstd = rstd,
                              .residual_out = {},
                              .residual = residual,
                              .delta = {},
                              .weight = weight,
                              .eps = kEps};
    if (with_delta) {
      op.delta = delta;
      op.residual_out = residual_out;
    }
    return op;
  }
};

Owned reference(const Norm& n, bool with_delta) {
  const std::int64_t rows = n.y.tensor().dim(0);
  const std::int64_t dim = n.y.tensor().dim(1);
  Owned y(DType::kF64, {rows, dim});
  for (std::int64_t r = 0; r < rows; ++r) {
    double squares = 0;
    const auto x = [&](std::int64_t c) {
      return n.residual.get(r * dim + c) + (with_delta ? n.delta.get(r * dim + c) : 0.0);
    };
    for (std::int64_t c = 0; c < dim; ++c) squares += x(c) * x(c);
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(dim) + kEps);
    for (std::int64_t c = 0; c < dim; ++c) y.set(r * dim + c, x(c) * rstd * n.weight.get(c));
  }
  return y;
}

TEST(ResidualNorm, ForwardIsTheFormulaInBothTypes) {
  const Backend cpu = make_backend("cpu", 2);
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    for (const bool with_delta : {false, true}) {
      const Norm n(dtype, 37, 130);
      cpu.ops->run(n.forward(with_delta));
      EXPECT_TRUE(near(n.y, reference(n, with_delta), dtype == DType::kF64 ? 1e-14 : 5e-7));
    }
  }
}

TEST(ResidualNorm, ResidualOutMayBeTheResidualItself) {
  const Backend cpu = make_backend("cpu", 2);
  const Norm apart(DType::kF32, 5, 33);
  const Norm in_place(DType::kF32, 5, 33);
  cpu.ops->run(apart.forward());
  ResidualNormForward op = in_place.forward();
  op.residual_out = in_place.residual;
  cpu.ops->run(op);
  EXPECT_TRUE(same(in_place.y, apart.y));
  EXPECT_TRUE(same(in_place.residual, apart.residual_out));
}

TEST(ResidualNorm, FloatReachesOneMillionthOnWideRows) {
  const Backend cpu = make_backend("cpu", 2);
  const Norm n(DType::kF32, 3, 8192);
  n.residual.fill(0.1);
  cpu.ops->run(n.forward(false));
  const double x = n.residual.get(0);
  for (std::int64_t r = 0; r < 3; ++r) {
    EXPECT_NEAR(n.rstd.get(r) * std::sqrt(x * x + kEps), 1.0, 1e-6);
  }
}

TEST(ResidualNorm, GradientsAreThoseOfCentralDifferences) {
  const Backend cpu = make_backend("cpu", 2);
  const Norm n(DType::kF64, 5, 12);
  const Owned dy = random_normal(DType::kF64, {5, 12}, 4);
  const auto objective = [&] {
    cpu.ops->run(n.forward());
    double sum = 0;
    for (std::int64_t i = 0; i < dy.size(); ++i) sum += n.y.get(i) * dy.get(i);
    return sum;
  };
  objective();
  const Owned dresidual(DType::kF64, {5, 12});
  const Owned dweight(DType::kF64, {12});
  cpu.ops->run(ResidualNormBackward{.dresidual = dresidual,
                                    .dweight = dweight,
                                    .dy = dy,
                                    .residual = n.residual_out,
                                    .rstd = n.rstd,
                                    .weight = n.weight});
  expect_gradient("residual", objective, n.residual, dresidual);
  expect_gradient("delta", objective, n.delta, dresidual);
  expect_gradient("weight", objective, n.weight, dweight);
}

struct Gradients {
  Owned dresidual, dweight;
};
Gradients backward(Ops& ops, DType dtype, bool accumulate, double start) {
  const Norm n(dtype, 200, 70);
  ops.run(n.forward(false));
  Gradients g = {Owned(dtype, {200, 70}), Owned(dtype, {70})};
  g.dresidual.fill(start);
  g.dweight.fill(start);
  ops.run(ResidualNormBackward{.dresidual = g.dresidual,
                               .dweight = g.dweight,
                               .dy = random_normal(dtype, {200, 70}, 4),
                               .residual = n.residual,
                               .rstd = n.rstd,
                               .weight = n.weight,
                               .accumulate = accumulate});
  return g;
}

TEST(ResidualNorm, BackwardAddsUnlessToldToOverwrite) {
  const Backend cpu = make_backend("cpu", 2);
  const Gradients fresh = backward(*cpu.ops, DType::kF64, false, 7);
  const Gradients from_zero = backward(*cpu.ops, DType::kF64, true, 0);
  const Gradients added = backward(*cpu.ops, DType::kF64, true, 7);
  EXPECT_TRUE(same(fresh.dresidual, from_zero.dresidual));
  for (std::int64_t i = 0; i < added.dresidual.size(); ++i) {
    ASSERT_NEAR(added.dresidual.get(i), fresh.dresidual.get(i) + 7, 1e-12);
  }
  for (std::int64_t i = 0; i < added.dweight.size(); ++i) {
    ASSERT_NEAR(added.dweight.get(i), from_zero.dweight.get(i) + 7, 1e-12);
  }
}

TEST(ResidualNorm, FloatAndDoubleGradientsAgree) {
  const Backend cpu = make_backend("cpu", 2);
  const Gradients single = backward(*cpu.ops, DType::kF32, true, 0);
  const Gradients twice = backward(*cpu.ops, DType::kF64, true, 0);
  EXPECT_TRUE(near(single.dresidual, twice.dresidual, 1e-6));
  EXPECT_TRUE(near(single.dweight, twice.dweight, 1e-6));
}

TEST(ResidualNorm, ResultsDoNotDependOnThreads) {
  const Backend one = make_backend("cpu", 1);
  const Backend three = make_backend("cpu", 3);
  const Gradients a = backward(*one.ops, DType::kF32, true, 0);
  const Gradients b = backward(*three.ops, DType::kF32, true, 0);
  EXPECT_TRUE(same(a.dresidual, b.dresidual));
  EXPECT_TRUE(same(a.dweight, b.dweight));
}

TEST(ResidualNorm, NoRowsAreLegal) {
  const Backend cpu = make_backend("cpu", 2);
  const Norm n(DType::kF32, 0, 8);
  cpu.ops->run(n.forward());
  const Owned dweight = random_normal(DType::kF32, {8}, 3);
  cpu.ops->run(ResidualNormBackward{.dresidual = n.residual,
                                    .dweight = dweight,
                                    .dy = n.y,
                                    .residual = n.residual,
                                    .rstd = n.rstd,
                                    .weight = n.weight});
  EXPECT_TRUE(same(dweight, n.weight));
}

TEST(ResidualNorm, CheckWantsResidualOutExactlyWithDelta) {
  const Backend cpu = make_backend("cpu", 1);
  const Norm n(DType::kF32, 2, 4);
  ResidualNormForward op = n.forward();
  op.residual_out = {};
  EXPECT_THROW(cpu.ops->run(op), Error);
  op = n.forward(false);
  op.residual_out = n.residual_out;
  EXPECT_THROW(cpu.ops->run(op), Error);
}

TEST(ResidualNorm, CheckRefusesWrongShapes) {
  const Backend cpu = make_backend("cpu", 1);
  const Norm n(DType::kF32, 2, 4);
  ResidualNormForward op = n.forward();
  op.rstd = n.weight;
  EXPECT_THROW(cpu.ops->run(op), Error);
  EXPECT_THROW(cpu.ops->run(ResidualNormBackward{.dresidual = n.y,
                                                 .dweight = n.rstd,
                                                 .dy = n.y,
                                                 .residual = n.residual,
                                                 .rstd = n.rstd,
                                                 .weight = n.weight}),
               Error);
}

}  // namespace
}  // namespace nsa
