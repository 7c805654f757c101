#include <string>

#include <gtest/gtest.h>

#include "golden/golden_runner.h"
#include "support/golden_file.h"

namespace nsa::test {
namespace {

/// A wrong value in any expected gradient must be found and named.
TEST(GoldenBackward, FindsAWrongElementOfAnyGradient) {
  Backend backend = make_backend("cpu", 1);
  for (const std::string file : {"packed_docs_rope", "layer_full", "dqk_ne_dv_mlpflat_rope"}) {
    int altered = 0;
    const Safetensors original(golden_path(file));
    for (const auto& [tensor, entry] : original.entries()) {
      if (tensor.rfind("grad.", 0) != 0) continue;
      GoldenCopy copy(file);
      ASSERT_TRUE(copy.scale_largest(tensor, 1.0002F)) << tensor;
      for (const DType dtype : {DType::kF32, DType::kF64}) {
        const GoldenResult found = run_golden(backend, read_golden_case(copy.path()), dtype);
        EXPECT_EQ(found.outcome, GoldenOutcome::kFail) << tensor;
        EXPECT_NE(found.detail.find(tensor), std::string::npos) << describe(found);
      }
      ++altered;
    }
    EXPECT_GE(altered, 19) << file;
  }
}

TEST(GoldenBackward, ExpectsNoGradientOfABypassedCompressor) {
  Backend backend = make_backend("cpu", 1);
  GoldenCopy copy("rate1_bypass");
  const float wrong = 1e-3F;
  std::int32_t bits = 0;
  std::memcpy(&bits, &wrong, sizeof(bits));
  copy.set_first("grad.phi_k.w1", bits);
  const GoldenResult found = run_golden(backend, read_golden_case(copy.path()), DType::kF64);
  EXPECT_EQ(found.outcome, GoldenOutcome::kFail);
  EXPECT_NE(found.detail.find("grad.phi_k.w1"), std::string::npos) << describe(found);
}

}  // namespace
}  // namespace nsa::test
