#include "kernels/attention_case.h"
#include "ops/dense_attention.h"

namespace nsa {
namespace {

using test::AttentionShape;
using test::Parity;

class DenseAttentionKernel : public test::KernelTest {};
INSTANTIATE_TEST_SUITE_P(Types, DenseAttentionKernel, ::testing::Values(DType::kF32, DType::kBF16),
                         test::type_name);

void run_forward(Parity& parity, const AttentionShape& shape) {
  parity.run(shape.lengths, [&](Ops& ops, const auto& at, const Documents& documents) {
    ops.run(DenseAttentionForward{.out = at("out"),
                                  .lse = at("lse"),
                                  .q = at("q"),
                                  .k = at("k"),
                                  .v = at("v"),
                                  .scale = shape.scale(),
                                  .documents = documents});
  });
}

void run_backward(Parity& parity, const AttentionShape& shape) {
  parity.run(shape.lengths, [&](Ops& ops, const auto& at, const Documents& documents) {
    ops.run(DenseAttentionBackward{.dq = at("dq"),
                                   .dk = at("dk"),
                                   .dv = at("dv"),
                                   .q = at("q"),
                                   .k = at("k"),
                                   .v = at("v"),
                                   .out = at("out"),
                                   .lse = at("lse"),
                                   .dout = at("dout"),
                                   .scale = shape.scale(),
                                   .documents = documents});
  });
}

TEST_P(DenseAttentionKernel, AttendsAsTheCpuDoes) {
  for (const AttentionShape& shape : test::attention_shapes()) {
    SCOPED_TRACE(shape.describe());
    Parity parity(GetParam());
    test::add_attention(parity, shape, shape.tokens());
    run_forward(parity, shape);
    EXPECT_TRUE(parity.near("out", test::tolerance(GetParam())));
    EXPECT_TRUE(test::logarithms_agree(parity, test::logarithm_tolerance(GetParam())));
  }
}

TEST_P(DenseAttentionKernel, GradientsAreTheCpus) {
  for (const AttentionShape& shape : test::attention_shapes()) {
    SCOPED_TRACE(shape.describe());
    Parity parity(GetParam());
    test::add_attention(parity, shape, shape.tokens());
    run_forward(parity, shape);
    test::prepare_backward(parity, shape, 0);
    run_backward(parity, shape);
    test::expect_gradients_near(parity);
  }
}

// Long enough for the rows of a key tile to be shared among thread blocks.
TEST_P(DenseAttentionKernel, TwoRunsGiveTheSameBits) {
  const AttentionShape shape{.lengths = {2000, 1}, .heads = 2, .kv_heads = 1};
  Parity parity(GetParam());
  test::add_attention(parity, shape, shape.tokens());
  run_forward(parity, shape);
  test::prepare_backward(parity, shape, 0);
  run_backward(parity, shape);
  test::expect_gradients_near(parity);
  const test::Owned dq = parity.fetch("dq");
  const test::Owned dk = parity.fetch("dk");
  const test::Owned dv = parity.fetch("dv");
  run_backward(parity, shape);
  EXPECT_TRUE(test::same(parity.fetch("dq"), dq));
  EXPECT_TRUE(test::same(parity.fetch("dk"), dk));
  EXPECT_TRUE(test::same(parity.fetch("dv"), dv));
}

TEST_P(DenseAttentionKernel, LargeScoresStayFinite) {
  const AttentionShape shape{.lengths = {150}, .heads = 4, .kv_heads = 2};
  Parity parity(GetParam());
  test::add_attention(parity, shape, shape.tokens());
  parity.input("q", test::random_normal(DType::kF32, {150, 4, 64}, 8, 60.0));
  run_forward(parity, shape);
  EXPECT_TRUE(parity.near("out", test::tolerance(GetParam(), 1e-3)));
}

}  // namespace
}  // namespace nsa
