#include "ops/matmul.h"

#include <gtest/gtest.h>

#include "ops/backend.h"
#include "support/near.h"

namespace nsa {
namespace {

using test::near;
using test::Owned;
using test::random_normal;
using test::same;

struct Shape {
  std::int64_t rows, n, k;
};

/// One tile, several tiles of rows and columns, and sizes that no tile divides.
const Shape kShapes[] = {{1, 1, 1}, {3, 5, 7}, {300, 17, 40}, {130, 700, 33}, {530, 96, 130}};

/// sum over i of a(r, i) * b(c, i) by strides, in double.
struct Strided {
  const Owned& data;
  std::int64_t outer, inner;
  double at(std::int64_t o, std::int64_t i) const { return data.get(o * outer + i * inner); }
};
Owned product(const Strided& a, const Strided& b, const Shape& extents, const Owned* start) {
  Owned out(DType::kF64, {extents.rows, extents.n});
  for (std::int64_t r = 0; r < extents.rows; ++r) {
    for (std::int64_t c = 0; c < extents.n; ++c) {
      double sum = start == nullptr ? 0 : start->get(r * extents.n + c);
      for (std::int64_t i = 0; i < extents.k; ++i) sum += a.at(r, i) * b.at(c, i);
      out.set(r * extents.n + c, sum);
    }
  }
  return out;
}

double tolerance(DType dtype) {
  return dtype == DType::kF64 ? 1e-14 : 2e-6;
}

class MatmulTypes : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, MatmulTypes, ::testing::Values(DType::kF32, DType::kF64),
                         [](const auto& test) { return std::string(name_of(test.param)); });

TEST_P(MatmulTypes, ForwardIsRowsTimesTransposedWeight) {
  const Backend cpu = make_backend("cpu", 2);
  for (const Shape& s : kShapes) {
    const Owned x = random_normal(GetParam(), {s.rows, s.k}, 1);
    const Owned weight = random_normal(GetParam(), {s.n, s.k}, 2);
    const Owned out = random_normal(GetParam(), {s.rows, s.n}, 3);
    cpu.ops->run(MatmulForward{.out = out, .x = x, .weight = weight});
    const Owned wanted = product({x, s.k, 1}, {weight, s.k, 1}, s, nullptr);
    EXPECT_TRUE(near(out, wanted, tolerance(GetParam()))) << s.rows << " " << s.n << " " << s.k;
  }
}

TEST_P(MatmulTypes, BackwardInputOverwritesWithGradientTimesWeight) {
  const Backend cpu = make_backend("cpu", 2);
  for (const Shape& s : kShapes) {
    const Owned dout = random_normal(GetParam(), {s.rows, s.n}, 1);
    const Owned weight = random_normal(GetParam(), {s.n, s.k}, 2);
    const Owned dx = random_normal(GetParam(), {s.rows, s.k}, 3);
    cpu.ops->run(MatmulBackwardInput{.dx = dx, .dout = dout, .weight = weight});
    const Owned wanted = product({dout, s.n, 1}, {weight, 1, s.k}, {s.rows, s.k, s.n}, nullptr);
    EXPECT_TRUE(near(dx, wanted, tolerance(GetParam()))) << s.rows << " " << s.n << " " << s.k;
  }
}

TEST_P(MatmulTypes, BackwardWeightAddsToWhatIsThere) {
  const Backend cpu = make_backend("cpu", 2);
  for (const Shape& s : kShapes) {
    const Owned dout = random_normal(GetParam(), {s.rows, s.n}, 1);
    const Owned x = random_normal(GetParam(), {s.rows, s.k}, 2);
    const Owned dweight = random_normal(GetParam(), {s.n, s.k}, 3);
    const Owned wanted = product({dout, 1, s.n}, {x, 1, s.k}, {s.n, s.k, s.rows}, &dweight);
    cpu.ops->run(MatmulBackwardWeight{.dweight = dweight, .dout = dout, .x = x});
    EXPECT_TRUE(near(dweight, wanted, tolerance(GetParam()))) << s.rows << " " << s.n << " " << s.k;
  }
}

TEST_P(MatmulTypes, ResultsDoNotDependOnThreads) {
  const Backend one = make_backend("cpu", 1);
  const Backend three = make_backend("cpu", 3);
  const Shape s = {530, 300, 130};
  const Owned x = random_normal(GetParam(), {s.rows, s.k}, 1);
  const Owned weight = random_normal(GetParam(), {s.n, s.k}, 2);
  const Owned dout = random_normal(GetParam(), {s.rows, s.n}, 3);
  Owned results[2][3];
  for (int i = 0; i < 2; ++i) {
    Ops& ops = i == 0 ? *one.ops : *three.ops;
    auto& [out, dx, dweight] = results[i];
    out = Owned(GetParam(), {s.rows, s.n});
    dx = Owned(GetParam(), {s.rows, s.k});
    dweight = Owned(GetParam(), {s.n, s.k});
    ops.run(MatmulForward{.out = out, .x = x, .weight = weight});
    ops.run(MatmulBackwardInput{.dx = dx, .dout = dout, .weight = weight});
    ops.run(MatmulBackwardWeight{.dweight = dweight, .dout = dout, .x = x});
  }
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(same(results[0][i], results[1][i])) << i;
}

TEST(Matmul, NoRowsLeaveTheWeightGradientAlone) {
  const Backend cpu = make_backend("cpu", 2);
  const Owned none(DType::kF32, {0, 4});
  const Owned weight = random_normal(DType::kF32, {4, 4}, 1);
  const Owned dweight = random_normal(DType::kF32, {4, 4}, 2);
  const Owned before = random_normal(DType::kF32, {4, 4}, 2);
  cpu.ops->run(MatmulForward{.out = none, .x = none, .weight = weight});
  cpu.ops->run(MatmulBackwardInput{.dx = none, .dout = none, .weight = weight});
  cpu.ops->run(MatmulBackwardWeight{.dweight = dweight, .dout = none, .x = none});
  EXPECT_TRUE(same(dweight, before));
}

TEST(Matmul, CheckNamesTheOpAndTheField) {
  const Backend cpu = make_backend("cpu", 1);
  const Owned x(DType::kF32, {2, 3});
  const Owned weight(DType::kF32, {4, 3});
  const Owned out(DType::kF32, {2, 5});
  try {
    cpu.ops->run(MatmulForward{.out = out, .x = x, .weight = weight});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(
        std::string(error.what()).find("MatmulForward: out must be fp32[2, 4], is fp32[2, 5]"),
        std::string::npos)
        << error.what();
  }
}

TEST(Matmul, CheckRefusesWrongTypesAndMissingFields) {
  const Backend cpu = make_backend("cpu", 1);
  const Owned x(DType::kF32, {2, 3});
  const Owned weight(DType::kF32, {4, 3});
  const Owned out(DType::kF32, {2, 4});
  const Owned double_out(DType::kF64, {2, 4});
  EXPECT_THROW(cpu.ops->run(MatmulForward{.out = double_out, .x = x, .weight = weight}), Error);
  EXPECT_THROW(cpu.ops->run(MatmulForward{.out = out, .x = x, .weight = {}}), Error);
  EXPECT_THROW(cpu.ops->run(MatmulBackwardInput{.dx = x, .dout = x, .weight = weight}), Error);
  EXPECT_THROW(cpu.ops->run(MatmulBackwardWeight{.dweight = weight, .dout = x, .x = x}), Error);
}

}  // namespace
}  // namespace nsa
