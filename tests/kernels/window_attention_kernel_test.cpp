#include "kernels/attention_case.h"
#include "ops/gate.h"
#include "ops/nsa_attention.h"

namespace nsa {
namespace {

using test::AttentionShape;
using test::Parity;

class WindowAttentionKernel : public test::KernelTest {};
INSTANTIATE_TEST_SUITE_P(Types, WindowAttentionKernel, ::testing::Values(DType::kF32, DType::kBF16),
                         test::type_name);

/// Windows of two keys, of less and more than a tile, and longer than the documents.
std::vector<AttentionShape> window_shapes() {
  constexpr std::int32_t kWindows[] = {37, 64, 130, 2, 9, 100, 1000, 5, 512};
  std::vector<AttentionShape> shapes = test::attention_shapes();
  for (std::size_t i = 0; i < shapes.size(); ++i) shapes[i].geometry.window = kWindows[i];
  return shapes;
}

void run_forward(Parity& parity, const AttentionShape& shape) {
  parity.run(shape.lengths, [&](Ops& ops, const auto& at, const Documents& documents) {
    ops.run(WindowAttentionForward{.out = at("out"),
                                   .lse = at("lse"),
                                   .q = at("q"),
                                   .k = at("k"),
                                   .v = at("v"),
                                   .scale = shape.scale(),
                                   .geometry = shape.geometry,
                                   .documents = documents});
  });
}

void run_backward(Parity& parity, const AttentionShape& shape, bool accumulate) {
  parity.run(shape.lengths, [&](Ops& ops, const auto& at, const Documents& documents) {
    auto op = test::branch_backward<WindowAttentionBackward>(shape, at, documents);
    op.accumulate_dq = accumulate;
    ops.run(op);
  });
}

TEST_P(WindowAttentionKernel, AttendsAsTheCpuDoes) {
  for (const AttentionShape& shape : window_shapes()) {
    SCOPED_TRACE(shape.describe());
    Parity parity(GetParam());
    test::add_attention(parity, shape, shape.tokens());
    run_forward(parity, shape);
    EXPECT_TRUE(parity.near("out", test::tolerance(GetParam())));
    EXPECT_TRUE(test::logarithms_agree(parity, test::logarithm_tolerance(GetParam())));
  }
}

TEST_P(WindowAttentionKernel, GradientsAreTheCpus) {
  for (const AttentionShape& shape : window_shapes()) {
    SCOPED_TRACE(shape.describe());
    Parity parity(GetParam());
    test::add_attention(parity, shape, shape.tokens());
    run_forward(parity, shape);
    test::prepare_backward(parity, shape, kWindow);
    run_backward(parity, shape, false);
    test::expect_gradients_near(parity);
  }
}

TEST_P(WindowAttentionKernel, AddsToTheGradientOfQueriesWhereAsked) {
  AttentionShape shape{.lengths = {100, 61}, .heads = 6, .kv_heads = 2};
  shape.geometry.window = 50;
  Parity parity(GetParam());
  test::add_attention(parity, shape, shape.tokens());
  run_forward(parity, shape);
  test::prepare_backward(parity, shape, kWindow);
  parity.input("dq", test::random_normal(DType::kF32, {161, 6, 64}, 9));
  run_backward(parity, shape, true);
  test::expect_gradients_near(parity);
}

}  // namespace
}  // namespace nsa
