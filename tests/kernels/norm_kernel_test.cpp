#include "kernels/dense_case.h"
#include "ops/norm.h"

namespace nsa {
namespace {

using test::expect_near;
using test::Kind;
using test::Parity;
using test::random_normal;

class NormKernel : public test::KernelTest {};
INSTANTIATE_TEST_SUITE_P(Types, NormKernel, ::testing::Values(DType::kF32, DType::kBF16),
                         test::type_name);

/// `in_place`: the sum takes the place of the residual.
void compare_norms(DType dtype, std::int64_t rows, std::int64_t dim, bool delta, bool accumulate,
                   bool in_place = false) {
  SCOPED_TRACE(::testing::Message() << rows << " rows of " << dim);
  Parity parity(dtype);
  parity.input("residual", random_normal(DType::kF32, {rows, dim}, 1));
  parity.input("delta", random_normal(DType::kF32, {rows, dim}, 2));
  parity.input("weight", random_normal(DType::kF32, {dim}, 3));
  parity.output("y", {rows, dim});
  parity.output("rstd", {rows}, Kind::kStat);
  parity.output("sum", {rows, dim});
  parity.input("dy", random_normal(DType::kF32, {rows, dim}, 4));
  parity.input("dresidual", random_normal(DType::kF32, {rows, dim}, 5));
  parity.input("dweight", random_normal(DType::kF32, {dim}, 6), Kind::kStat);
  const char* sum = in_place || !delta ? "residual" : "sum";
  parity.run({rows}, [&](Ops& ops, const auto& at, const Documents& /*documents*/) {
    ops.run(ResidualNormForward{.y = at("y"),
                                .rstd = at("rstd"),
                                .residual_out = at(delta ? sum : ""),
                                .residual = at("residual"),
                                .delta = at(delta ? "delta" : ""),
                                .weight = at("weight")});
    ops.run(ResidualNormBackward{.dresidual = at("dresidual"),
                                 .dweight = at("dweight"),
                                 .dy = at("dy"),
                                 .residual = at(sum),
                                 .rstd = at("rstd"),
                                 .weight = at("weight"),
                                 .accumulate = accumulate});
  });
  expect_near(parity, {"y", "rstd", "dresidual", "dweight"});
  if (delta) expect_near(parity, {sum});
}

TEST_P(NormKernel, NormsRowsOfEveryWidth) {
  compare_norms(GetParam(), 70, 256, true, true);
  compare_norms(GetParam(), 600, 64, true, false);
  compare_norms(GetParam(), 3, 2816, false, true);
  compare_norms(GetParam(), 17, 37, true, true);
  compare_norms(GetParam(), 9, 768, true, true);
  compare_norms(GetParam(), 9, 4096, true, true);
  compare_norms(GetParam(), 1, 1, false, true);
  compare_norms(GetParam(), 0, 64, true, true);
}

// More packs than one thread block of the backward holds in registers.
TEST_P(NormKernel, NormsWideRows) {
  compare_norms(GetParam(), 300, 4104, true, true);
  compare_norms(GetParam(), 5, 515, true, false);
}

TEST_P(NormKernel, AddsToTheResidualInPlace) {
  compare_norms(GetParam(), 70, 256, true, true, true);
  compare_norms(GetParam(), 7, 33, true, true, true);
}

// More rows than thread blocks: each of them goes through several.
TEST_P(NormKernel, SharesManyRows) {
  compare_norms(GetParam(), 5000, 40, true, true);
  compare_norms(GetParam(), 2500, 600, true, true);
}

TEST_P(NormKernel, TwoRunsGiveTheSameGradients) {
  Parity parity(GetParam());
  parity.input("dy", random_normal(DType::kF32, {3001, 96}, 1));
  parity.input("residual", random_normal(DType::kF32, {3001, 96}, 2));
  parity.input("weight", random_normal(DType::kF32, {96}, 3));
  parity.input("rstd", random_normal(DType::kF32, {3001}, 4), Kind::kStat);
  parity.output("dresidual", {3001, 96});
  for (const char* name : {"first", "second"}) {
    parity.input(name, test::Owned(DType::kF32, {96}), Kind::kStat);
    parity.run({3001}, [&](Ops& ops, const auto& at, const Documents& /*documents*/) {
      ops.run(ResidualNormBackward{.dresidual = at("dresidual"),
                                   .dweight = at(name),
                                   .dy = at("dy"),
                                   .residual = at("residual"),
                                   .rstd = at("rstd"),
                                   .weight = at("weight"),
                                   .accumulate = false});
    });
  }
  EXPECT_TRUE(test::same(parity.fetch("first"), parity.fetch("second")));
}

}  // namespace
}  // namespace nsa
