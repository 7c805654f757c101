#include "ops/attention_parity.h"

namespace nsa::test {
namespace {

class WindowAttention : public testing::TestWithParam<AttentionCase> {};

TEST_P(WindowAttention, IsSoftmaxOverItsKeys) {
  expect_definition(GetParam(), Kind::kWindowed);
}
TEST_P(WindowAttention, GradientsAreDerivatives) {
  expect_gradients(GetParam(), Kind::kWindowed);
}
TEST_P(WindowAttention, SinglePrecisionGradientsAreClose) {
  expect_single_gradients(GetParam(), Kind::kWindowed);
}
TEST_P(WindowAttention, IsTheSameOnAnyNumberOfThreads) {
  expect_same_on_any_threads(GetParam(), Kind::kWindowed);
}
TEST_P(WindowAttention, PackedDocumentsEqualSeparateOnesInSinglePrecision) {
  expect_packed_equals_separate(GetParam(), Kind::kWindowed, DType::kF32);
}
TEST_P(WindowAttention, PackedDocumentsEqualSeparateOnesInDoublePrecision) {
  expect_packed_equals_separate(GetParam(), Kind::kWindowed, DType::kF64);
}

INSTANTIATE_TEST_SUITE_P(Shapes, WindowAttention, testing::ValuesIn(hard_cases()),
                         [](const auto& shape) { return shape.param.name; });

}  // namespace
}  // namespace nsa::test
