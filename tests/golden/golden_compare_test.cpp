#include "golden/golden_compare.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/golden_file.h"

namespace nsa::test {
namespace {

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}

/// Compares every result of the file with itself, but `tensor` with an error of `relative` times
/// its largest magnitude (1 where it is all zero) on one element.
GoldenResult compare_with_error(const std::string& file, const std::string& tensor, double relative,
                                DType dtype) {
  const GoldenCase golden = read_golden_case(golden_path(file));
  GoldenComparison comparison(golden, dtype);
  for (const auto& [name, entry] : golden.file.entries()) {
    if (name.rfind("in.", 0) == 0 || name == "mid.sel_gap") continue;
    std::vector<double> values = golden.file.values(name);
    if (name == tensor) {
      const double most = largest(values);
      values.at(3) += relative * (most > 0 ? most : 1);
    }
    comparison.near(name, values);
  }
  return comparison.finish();
}

struct Limit {
  const char* file;
  const char* tensor;
  DType dtype;
  double allowed;
};

TEST(GoldenComparison, AllowsTheErrorsOfTheSpecificationAndNoMore) {
  for (const Limit& limit :
       {Limit{"gqa1", "out.out", DType::kF64, 1e-6}, Limit{"gqa1", "grad.q", DType::kF64, 1e-6},
        Limit{"gqa1", "out.out", DType::kF32, 1e-5}, Limit{"gqa1", "grad.q", DType::kF32, 5e-5},
        Limit{"rate1_bypass", "grad.phi_k.w1", DType::kF64, 1e-7},
        Limit{"rate1_bypass", "grad.phi_k.w1", DType::kF32, 1e-6}}) {
    EXPECT_EQ(
        compare_with_error(limit.file, limit.tensor, 0.9 * limit.allowed, limit.dtype).outcome,
        GoldenOutcome::kPass)
        << limit.tensor;
    const GoldenResult over =
        compare_with_error(limit.file, limit.tensor, 1.1 * limit.allowed, limit.dtype);
    EXPECT_EQ(over.outcome, GoldenOutcome::kFail) << limit.tensor;
    EXPECT_NE(over.detail.find(limit.tensor), std::string::npos) << over.detail;
  }
}

TEST(GoldenComparison, NamesTheLargestErrorOfAPass) {
  const GoldenResult result = compare_with_error("gqa1", "grad.k_slc", 5e-7, DType::kF64);
  EXPECT_EQ(result.outcome, GoldenOutcome::kPass);
  EXPECT_NE(result.detail.find("5.0e-07"), std::string::npos) << result.detail;
  EXPECT_NE(result.detail.find("grad.k_slc"), std::string::npos) << result.detail;
}

TEST(GoldenComparison, NonFiniteElementsMustAgreeInPlaceAndSign) {
  const GoldenCase golden = read_golden_case(golden_path("gqa1"));
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double wrong : {infinity, 0.0, nan}) {
    GoldenComparison comparison(golden, DType::kF64);
    std::vector<double> values = golden.file.values("out.lse_cmp");
    ASSERT_EQ(values.front(), -infinity);
    values.front() = wrong;
    comparison.near("out.lse_cmp", values);
    EXPECT_NE(comparison.finish().detail.find("out.lse_cmp[0]"), std::string::npos) << wrong;
  }
  for (const double wrong : {infinity, -infinity, nan}) {
    GoldenComparison comparison(golden, DType::kF64);
    std::vector<double> values = golden.file.values("out.out");
    values.at(5) = wrong;
    comparison.near("out.out", values);
    EXPECT_NE(comparison.finish().detail.find("out.out[5]"), std::string::npos) << wrong;
  }
}

TEST(GoldenComparison, AResultComparedWithNothingFails) {
  const GoldenCase golden = read_golden_case(golden_path("gqa1"));
  GoldenComparison comparison(golden, DType::kF64);
  comparison.near("out.out", golden.file.values("out.out"));
  const GoldenResult result = comparison.finish();
  EXPECT_EQ(result.outcome, GoldenOutcome::kFail);
  EXPECT_NE(result.detail.find("compared with nothing"), std::string::npos) << result.detail;
}

TEST(GoldenComparison, SelectionsAreJudgedWhereTheChoiceIsClear) {
  const GoldenCase golden = read_golden_case(golden_path("ties_dup"));
  const std::vector<double> gaps = golden.file.values("mid.sel_gap");
  const auto width = static_cast<std::size_t>(golden.geometry.top_n);
  const auto judged = [&](std::size_t row, DType dtype) {
    GoldenComparison comparison(golden, dtype);
    std::vector<double> blocks = golden.file.values("mid.sel_idx");
    blocks.at(row * width) += 1;
    comparison.selection(blocks);
    return comparison.finish().detail.find("selection") != std::string::npos;
  };
  const auto tie = std::find(gaps.begin(), gaps.end(), 0.0) - gaps.begin();
  const auto clear =
      std::find_if(gaps.begin(), gaps.end(), [](double gap) { return gap > 1e-3; }) - gaps.begin();
  ASSERT_LT(tie, static_cast<std::ptrdiff_t>(gaps.size()));
  ASSERT_LT(clear, static_cast<std::ptrdiff_t>(gaps.size()));
  EXPECT_TRUE(judged(static_cast<std::size_t>(clear), DType::kF64));
  EXPECT_FALSE(judged(static_cast<std::size_t>(tie), DType::kF64));
  EXPECT_FALSE(judged(static_cast<std::size_t>(clear), DType::kF32));
}

}  // namespace
}  // namespace nsa::test
