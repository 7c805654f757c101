#include <string>

#include <gtest/gtest.h>

#include "golden/golden_runner.h"
#include "support/golden_file.h"

namespace nsa::test {
namespace {

/// A wrong value in any expected result must be found and named.
TEST(GoldenForward, FindsAWrongElementOfAnyResult) {
  Backend backend = make_backend("cpu", 1);
  for (const std::string file : {"packed_docs_rope", "layer_full", "rope_before_phi"}) {
    int altered = 0;
    const Safetensors original(golden_path(file));
    for (const auto& [tensor, entry] : original.entries()) {
      const bool result = tensor.rfind("out.", 0) == 0 || tensor.rfind("mid.", 0) == 0;
      if (!result || tensor == "mid.sel_gap") continue;
      GoldenCopy copy(file);
      if (!copy.scale_largest(tensor, 1.0001F)) continue;
      for (const DType dtype : {DType::kF32, DType::kF64}) {
        const GoldenResult found = run_golden(backend, read_golden_case(copy.path()), dtype);
        EXPECT_EQ(found.outcome, GoldenOutcome::kFail) << tensor;
        EXPECT_NE(found.detail.find(tensor), std::string::npos) << describe(found);
      }
      ++altered;
    }
    EXPECT_GE(altered, 11) << file;
  }
}

TEST(GoldenForward, FindsAWrongSelectedBlock) {
  Backend backend = make_backend("cpu", 1);
  GoldenCopy copy("nodiv_T");
  copy.set_first("mid.sel_idx", -1);  // the first query then attends to nothing
  const GoldenResult found = run_golden(backend, read_golden_case(copy.path()), DType::kF64);
  EXPECT_EQ(found.outcome, GoldenOutcome::kFail) << describe(found);
}

TEST(GoldenForward, FindsAWrongRowOffset) {
  Backend backend = make_backend("cpu", 1);
  GoldenCopy copy("packed_docs_rope");
  copy.set_first("mid.cu_cmp", 1);
  const GoldenResult found = run_golden(backend, read_golden_case(copy.path()), DType::kF64);
  EXPECT_EQ(found.outcome, GoldenOutcome::kFail);
  EXPECT_NE(found.detail.find("mid.cu_cmp"), std::string::npos) << describe(found);
}

TEST(GoldenForward, UsesTheSettingsOfTheFile) {
  Backend backend = make_backend("cpu", 1);
  for (const auto& [from, to] :
       {std::pair{R"(\"w\": 12)", R"(\"w\": 13)"}, std::pair{R"(\"center\")", R"(\"start\")"},
        std::pair{R"(\"scale\": 0.25)", R"(\"scale\": 0.26)"},
        std::pair{R"(\"rope_base\": 10000.0)", R"(\"rope_base\": 9000.0)"},
        std::pair{R"(\"n_local\": 2)", R"(\"n_local\": 1)"}}) {
    GoldenCopy copy("packed_docs_rope");
    copy.replace(from, to);
    const GoldenResult found = run_golden(backend, read_golden_case(copy.path()), DType::kF64);
    EXPECT_EQ(found.outcome, GoldenOutcome::kFail) << to;
  }
}

}  // namespace
}  // namespace nsa::test
