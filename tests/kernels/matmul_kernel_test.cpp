#include "kernels/parity.h"
#include "ops/matmul.h"

namespace nsa {
namespace {

using test::Kind;
using test::Parity;
using test::random_normal;

class MatmulKernel : public test::KernelTest {};
INSTANTIATE_TEST_SUITE_P(Types, MatmulKernel, ::testing::Values(DType::kF32, DType::kBF16),
                         test::type_name);

TEST_P(MatmulKernel, MultipliesAsTheCpuDoes) {
  Parity parity(GetParam());
  parity.input("x", random_normal(DType::kF32, {72, 40}, 1));
  parity.input("weight", random_normal(DType::kF32, {56, 40}, 2));
  parity.input("dout", random_normal(DType::kF32, {72, 56}, 3));
  parity.output("out", {72, 56});
  parity.output("dx", {72, 40});
  parity.input("dweight", random_normal(DType::kF32, {56, 40}, 4), Kind::kStat);
  parity.run({72}, [](Ops& ops, const auto& at, const Documents& /*documents*/) {
    ops.run(MatmulForward{.out = at("out"), .x = at("x"), .weight = at("weight")});
    ops.run(MatmulBackwardInput{.dx = at("dx"), .dout = at("dout"), .weight = at("weight")});
    ops.run(MatmulBackwardWeight{.dweight = at("dweight"), .dout = at("dout"), .x = at("x")});
  });
  for (const char* name : {"out", "dx", "dweight"}) {
    EXPECT_TRUE(parity.near(name, test::tolerance(GetParam())));
  }
}

}  // namespace
}  // namespace nsa
