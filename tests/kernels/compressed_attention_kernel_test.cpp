#include "kernels/attention_case.h"
#include "ops/gate.h"
#include "ops/nsa_attention.h"

namespace nsa {
namespace {

using test::AttentionShape;
using test::Parity;

class CompressedAttentionKernel : public test::KernelTest {};
INSTANTIATE_TEST_SUITE_P(Types, CompressedAttentionKernel,
                         ::testing::Values(DType::kF32, DType::kBF16), test::type_name);

/// Rates 1, 4 and 16, and documents that have no compressed row.
std::vector<AttentionShape> compressed_shapes() {
  constexpr std::int32_t kRates[] = {4, 16, 1, 4, 16, 1, 4, 16, 4};
  std::vector<AttentionShape> shapes = test::attention_shapes();
  for (std::size_t i = 0; i < shapes.size(); ++i) shapes[i].geometry.rate = kRates[i];
  return shapes;
}

void run_forward(Parity& parity, const AttentionShape& shape, bool with_out = true) {
  parity.run(shape.lengths, [&](Ops& ops, const auto& at, const Documents& documents) {
    ops.run(CompressedSelectForward{.out = at(with_out ? "out" : ""),
                                    .lse = at("lse"),
                                    .blocks = {},
                                    .importance = {},
                                    .q = at("q"),
                                    .k = at("k"),
                                    .v = at(with_out ? "v" : ""),
                                    .scale = shape.scale(),
                                    .geometry = shape.geometry,
                                    .documents = documents});
  });
}

void run_backward(Parity& parity, const AttentionShape& shape) {
  parity.run(shape.lengths, [&](Ops& ops, const auto& at, const Documents& documents) {
    ops.run(test::branch_backward<CompressedAttentionBackward>(shape, at, documents));
  });
}

TEST_P(CompressedAttentionKernel, AttendsAsTheCpuDoes) {
  for (const AttentionShape& shape : compressed_shapes()) {
    SCOPED_TRACE(shape.describe());
    Parity parity(GetParam());
    test::add_attention(parity, shape, shape.compressed_rows());
    run_forward(parity, shape);
    EXPECT_TRUE(parity.near("out", test::tolerance(GetParam())));
    EXPECT_TRUE(test::logarithms_agree(parity, test::logarithm_tolerance(GetParam())));
  }
}

TEST_P(CompressedAttentionKernel, LogarithmsAloneAreThoseOfTheAttention) {
  AttentionShape shape{.lengths = {170, 20}, .heads = 4, .kv_heads = 2};
  Parity parity(GetParam());
  test::add_attention(parity, shape, shape.compressed_rows());
  run_forward(parity, shape, false);
  EXPECT_TRUE(test::logarithms_agree(parity, test::logarithm_tolerance(GetParam())));
}

TEST_P(CompressedAttentionKernel, GradientsAreTheCpus) {
  for (const AttentionShape& shape : compressed_shapes()) {
    SCOPED_TRACE(shape.describe());
    Parity parity(GetParam());
    test::add_attention(parity, shape, shape.compressed_rows());
    run_forward(parity, shape);
    test::prepare_backward(parity, shape, kCompressed);
    run_backward(parity, shape);
    test::expect_gradients_near(parity);
  }
}

// Few key rows, each seen by thousands of queries: their rows are shared among thread blocks, also
// where a tile of keys reaches over documents without any.
TEST_P(CompressedAttentionKernel, GradientsOfLongDocumentsAreSummedFromParts) {
  std::vector<std::int64_t> lengths = {900, 2500};
  lengths.insert(lengths.begin() + 1, 40, 13);
  const AttentionShape shape{.lengths = lengths, .heads = 4, .kv_heads = 1};
  Parity parity(GetParam());
  test::add_attention(parity, shape, shape.compressed_rows());
  run_forward(parity, shape);
  test::prepare_backward(parity, shape, kCompressed);
  run_backward(parity, shape);
  test::expect_gradients_near(parity);
}

}  // namespace
}  // namespace nsa
