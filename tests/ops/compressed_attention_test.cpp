#include "ops/attention_parity.h"

namespace nsa::test {
namespace {

class CompressedAttention : public testing::TestWithParam<AttentionCase> {};

TEST_P(CompressedAttention, IsSoftmaxOverItsKeys) {
  expect_definition(GetParam(), Kind::kCompressed);
}
TEST_P(CompressedAttention, GradientsAreDerivatives) {
  expect_gradients(GetParam(), Kind::kCompressed);
}
TEST_P(CompressedAttention, SinglePrecisionGradientsAreClose) {
  expect_single_gradients(GetParam(), Kind::kCompressed);
}
TEST_P(CompressedAttention, IsTheSameOnAnyNumberOfThreads) {
  expect_same_on_any_threads(GetParam(), Kind::kCompressed);
}
TEST_P(CompressedAttention, PackedDocumentsEqualSeparateOnesInSinglePrecision) {
  expect_packed_equals_separate(GetParam(), Kind::kCompressed, DType::kF32);
}
TEST_P(CompressedAttention, PackedDocumentsEqualSeparateOnesInDoublePrecision) {
  expect_packed_equals_separate(GetParam(), Kind::kCompressed, DType::kF64);
}

INSTANTIATE_TEST_SUITE_P(Shapes, CompressedAttention, testing::ValuesIn(hard_cases()),
                         [](const auto& shape) { return shape.param.name; });

}  // namespace
}  // namespace nsa::test
