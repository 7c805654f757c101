#include "ops/swiglu.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "ops/backend.h"
#include "ops/cpu/vector_math.h"
#include "support/gradcheck.h"
#include "support/near.h"

namespace nsa {
namespace {

using test::expect_gradient;
using test::near;
using test::Owned;
using test::random_normal;
using test::same;

Owned reference(const Owned& gate_up, std::int64_t rows, std::int64_t ffn) {
  Owned y(DType::kF64, {rows, ffn});
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < ffn; ++c) {
      const double gate = gate_up.get(r * 2 * ffn + c);
      y.set(r * ffn + c, gate / (1 + std::exp(-gate)) * gate_up.get(r * 2 * ffn + ffn + c));
    }
  }
  return y;
}

TEST(SwiGlu, ForwardIsTheFormulaInBothTypes) {
  const Backend cpu = make_backend("cpu", 2);
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    for (const std::int64_t rows : {0, 1, 300}) {
      const Owned gate_up = random_normal(dtype, {rows, 2 * 77}, 1, 3.0);
      const Owned y(dtype, {rows, 77});
      cpu.ops->run(SwiGluForward{.y = y, .gate_up = gate_up});
      EXPECT_TRUE(near(y, reference(gate_up, rows, 77), dtype == DType::kF64 ? 1e-14 : 5e-7));
    }
  }
}

TEST(SwiGlu, FarGatesSaturateWithoutNaN) {
  const Backend cpu = make_backend("cpu", 1);
  const Owned gate_up(DType::kF32, {1, 4});
  gate_up.assign({-200, 200, 3, 3});
  const Owned y(DType::kF32, {1, 2});
  cpu.ops->run(SwiGluForward{.y = y, .gate_up = gate_up});
  EXPECT_EQ(y.get(0), 0);
  EXPECT_EQ(y.get(1), 600);
}

TEST(SwiGlu, GradientsAreThoseOfCentralDifferences) {
  const Backend cpu = make_backend("cpu", 2);
  const Owned gate_up = random_normal(DType::kF64, {4, 18}, 1, 2.0);
  const Owned dy = random_normal(DType::kF64, {4, 9}, 2);
  const Owned y(DType::kF64, {4, 9});
  const auto objective = [&] {
    cpu.ops->run(SwiGluForward{.y = y, .gate_up = gate_up});
    double sum = 0;
    for (std::int64_t i = 0; i < dy.size(); ++i) sum += y.get(i) * dy.get(i);
    return sum;
  };
  const Owned dgate_up(DType::kF64, {4, 18});
  cpu.ops->run(SwiGluBackward{.dgate_up = dgate_up, .dy = dy, .gate_up = gate_up});
  expect_gradient("gate_up", objective, gate_up, dgate_up);
}

Owned backward(Ops& ops, DType dtype, bool in_place) {
  const Owned gate_up = random_normal(dtype, {90, 2 * 345}, 1);
  const Owned dy = random_normal(dtype, {90, 345}, 2);
  Owned dgate_up = in_place ? gate_up : Owned(dtype, {90, 2 * 345});
  ops.run(SwiGluBackward{.dgate_up = dgate_up, .dy = dy, .gate_up = gate_up});
  return dgate_up;
}

TEST(SwiGlu, BackwardMayWorkInPlace) {
  const Backend cpu = make_backend("cpu", 2);
  EXPECT_TRUE(same(backward(*cpu.ops, DType::kF32, true), backward(*cpu.ops, DType::kF32, false)));
}

TEST(SwiGlu, FloatAndDoubleGradientsAgree) {
  const Backend cpu = make_backend("cpu", 2);
  EXPECT_TRUE(
      near(backward(*cpu.ops, DType::kF32, false), backward(*cpu.ops, DType::kF64, false), 5e-7));
}

TEST(SwiGlu, ResultsDoNotDependOnThreads) {
  const Backend one = make_backend("cpu", 1);
  const Backend three = make_backend("cpu", 3);
  EXPECT_TRUE(
      same(backward(*one.ops, DType::kF32, false), backward(*three.ops, DType::kF32, false)));
}

TEST(SwiGlu, CheckRefusesWrongShapes) {
  const Backend cpu = make_backend("cpu", 1);
  const Owned y(DType::kF32, {2, 3});
  EXPECT_THROW(cpu.ops->run(SwiGluForward{.y = y, .gate_up = y}), Error);
  const Owned gate_up(DType::kF32, {2, 6});
  EXPECT_THROW(cpu.ops->run(SwiGluBackward{.dgate_up = y, .dy = y, .gate_up = gate_up}), Error);
}

TEST(FastExp, IsWithinTwoUlpOverTheWholeRangeOfFloat) {
  double worst = 0;
  for (float x = -87.0F; x < 88.7F; x += 0.00137F) {
    const double wanted = std::exp(static_cast<double>(x));
    const auto rounded = static_cast<float>(wanted);
    const double ulp = std::nextafter(rounded, std::numeric_limits<float>::infinity()) - rounded;
    worst = std::max(worst, std::abs(cpu::fast_exp(x) - wanted) / ulp);
  }
  EXPECT_LE(worst, 2.0);
}

TEST(FastExp, EndsAreThoseOfTheExponential) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(cpu::fast_exp(-kInfinity), 0.0F);
  EXPECT_EQ(cpu::fast_exp(0.0F), 1.0F);
  EXPECT_EQ(cpu::fast_exp(kInfinity), kInfinity);
  EXPECT_EQ(cpu::fast_exp(89.0F), kInfinity);
  EXPECT_TRUE(std::isnan(cpu::fast_exp(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_NEAR(cpu::fast_exp(-95.0F), std::exp(-95.0), 2e-45);  // a denormal
}

}  // namespace
}  // namespace nsa
