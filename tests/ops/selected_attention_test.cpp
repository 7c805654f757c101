#include "ops/attention_parity.h"

namespace nsa::test {
namespace {

class SelectedAttention : public testing::TestWithParam<AttentionCase> {};

TEST_P(SelectedAttention, IsSoftmaxOverItsKeys) {
  expect_definition(GetParam(), Kind::kSelected);
}
TEST_P(SelectedAttention, GradientsAreDerivatives) {
  expect_gradients(GetParam(), Kind::kSelected);
}
TEST_P(SelectedAttention, SinglePrecisionGradientsAreClose) {
  expect_single_gradients(GetParam(), Kind::kSelected);
}
TEST_P(SelectedAttention, IsTheSameOnAnyNumberOfThreads) {
  expect_same_on_any_threads(GetParam(), Kind::kSelected);
}
TEST_P(SelectedAttention, PackedDocumentsEqualSeparateOnesInSinglePrecision) {
  expect_packed_equals_separate(GetParam(), Kind::kSelected, DType::kF32);
}
TEST_P(SelectedAttention, PackedDocumentsEqualSeparateOnesInDoublePrecision) {
  expect_packed_equals_separate(GetParam(), Kind::kSelected, DType::kF64);
}

INSTANTIATE_TEST_SUITE_P(Shapes, SelectedAttention, testing::ValuesIn(hard_cases()),
                         [](const auto& shape) { return shape.param.name; });

}  // namespace
}  // namespace nsa::test
