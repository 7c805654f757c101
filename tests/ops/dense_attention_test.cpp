#include "ops/attention_parity.h"

namespace nsa::test {
namespace {

class DenseAttention : public testing::TestWithParam<AttentionCase> {};

TEST_P(DenseAttention, IsSoftmaxOverItsKeys) {
  expect_definition(GetParam(), Kind::kDense);
}
TEST_P(DenseAttention, GradientsAreDerivatives) {
  expect_gradients(GetParam(), Kind::kDense);
}
TEST_P(DenseAttention, SinglePrecisionGradientsAreClose) {
  expect_single_gradients(GetParam(), Kind::kDense);
}
TEST_P(DenseAttention, IsTheSameOnAnyNumberOfThreads) {
  expect_same_on_any_threads(GetParam(), Kind::kDense);
}
TEST_P(DenseAttention, PackedDocumentsEqualSeparateOnesInSinglePrecision) {
  expect_packed_equals_separate(GetParam(), Kind::kDense, DType::kF32);
}
TEST_P(DenseAttention, PackedDocumentsEqualSeparateOnesInDoublePrecision) {
  expect_packed_equals_separate(GetParam(), Kind::kDense, DType::kF64);
}

INSTANTIATE_TEST_SUITE_P(Shapes, DenseAttention, testing::ValuesIn(hard_cases()),
                         [](const auto& shape) { return shape.param.name; });

}  // namespace
}  // namespace nsa::test
