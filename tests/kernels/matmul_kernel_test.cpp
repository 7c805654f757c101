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

/// The three products of a layer, from x [rows, in] and out [rows, out].
void multiply(Parity& parity, std::int64_t rows, std::int64_t in, std::int64_t out) {
  parity.input("x", random_normal(DType::kF32, {rows, in}, 1));
  parity.input("weight", random_normal(DType::kF32, {out, in}, 2));
  parity.input("dout", random_normal(DType::kF32, {rows, out}, 3));
  parity.output("out", {rows, out});
  parity.output("dx", {rows, in});
  parity.input("dweight", random_normal(DType::kF32, {out, in}, 4), Kind::kStat);
  parity.run({rows}, [](Ops& ops, const auto& at, const Documents& /*documents*/) {
    ops.run(MatmulForward{.out = at("out"), .x = at("x"), .weight = at("weight")});
    ops.run(MatmulBackwardInput{.dx = at("dx"), .dout = at("dout"), .weight = at("weight")});
    ops.run(MatmulBackwardWeight{.dweight = at("dweight"), .dout = at("dout"), .x = at("x")});
  });
}

TEST_P(MatmulKernel, MultipliesAsTheCpuDoes) {
  Parity parity(GetParam());
  multiply(parity, 72, 40, 56);
  for (const char* name : {"out", "dx", "dweight"}) {
    EXPECT_TRUE(parity.near(name, test::tolerance(GetParam())));
  }
}

// Large enough that algorithms are tried; dweight is added to once, not once a trial.
TEST_P(MatmulKernel, ALargeProductIsTheSameWhicheverAlgorithmIsFastest) {
  Parity first(GetParam());
  Parity second(GetParam());
  for (Parity* parity : {&first, &second}) multiply(*parity, 2048, 1600, 1600);
  for (const char* name : {"out", "dx", "dweight"}) {
    EXPECT_TRUE(first.near(name, test::tolerance(GetParam())));
    EXPECT_TRUE(test::same(first.fetch(name), second.fetch(name))) << name;
  }
}

}  // namespace
}  // namespace nsa
