#include "golden/golden_compare.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/format.h"

namespace nsa {
namespace {

/// A chosen block must lead the best rejected one by this much before rounding of the scores may be
/// ruled out as the reason for another choice. An importance sums the probabilities of a group of
/// heads over the compressed tokens of a block, so it has the rounding of them all.
double clear_gap(const GoldenCase& golden, DType dtype) {
  if (dtype != DType::kBF16) return 1e-4;
  const NsaGeometry& geometry = golden.geometry;
  const std::int64_t summed =
      golden.heads / golden.kv_heads * (geometry.compress_block() / geometry.rate);
  return 2e-2 * static_cast<double>(summed);
}

struct Tolerance {
  double relative;
  double absolute;  ///< where the expected tensor is all zero
};

Tolerance tolerance_of(const std::string& tensor, DType dtype) {
  if (dtype == DType::kF64) return {1e-6, 1e-7};
  const bool gradient = tensor.rfind("grad.", 0) == 0;
  if (dtype == DType::kBF16) return {gradient ? 3e-2 : 2e-2, 1e-2};
  return {gradient ? 5e-5 : 1e-5, 1e-6};
}

const char* name_of(GoldenOutcome outcome) {
  switch (outcome) {
    case GoldenOutcome::kPass:
      return "PASS";
    case GoldenOutcome::kFail:
      return "FAIL";
    case GoldenOutcome::kSkip:
      return "SKIP";
  }
  return "?";
}

}  // namespace

std::string describe(const GoldenResult& result) {
  return fmt::format("{:<24} {} {}  {}", result.name, nsa::name_of(result.dtype),
                     name_of(result.outcome), result.detail);
}

void GoldenComparison::fail_with(const std::string& detail) {
  failures_.push_back(detail);
}

void GoldenComparison::near(const std::string& tensor, const std::vector<double>& actual) {
  const std::vector<double> expected = golden_->file.values(tensor);
  check(actual.size() == expected.size(), "a golden result has another size than its tensor");
  compared_.insert(tensor);
  double largest = 0;
  double error = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (std::isfinite(expected[i]) && std::isfinite(actual[i])) {
      largest = std::max(largest, std::abs(expected[i]));
      error = std::max(error, std::abs(actual[i] - expected[i]));
    } else if (expected[i] != actual[i]) {
      fail_with(fmt::format("{}[{}] is {}, wanted {}", tensor, i, actual[i], expected[i]));
      return;
    }
  }
  const Tolerance tolerance = tolerance_of(tensor, dtype_);
  const double scale = largest > 0 ? largest : 1;
  const double allowed = largest > 0 ? tolerance.relative * largest : tolerance.absolute;
  if (error > allowed) {
    fail_with(fmt::format("{}: error {:.2e} of its largest magnitude {:.3g}, allowed {:.0e}",
                          tensor, error / scale, largest, allowed / scale));
  }
  if (error / allowed > worst_) {
    worst_ = error / allowed;
    worst_error_ = error / scale;
    worst_tensor_ = tensor;
  }
}

void GoldenComparison::exact(const std::string& tensor, const std::vector<double>& actual) {
  compared_.insert(tensor);
  equal(tensor, actual, golden_->file.values(tensor));
}

void GoldenComparison::equal(const std::string& what, const std::vector<double>& actual,
                             const std::vector<double>& expected) {
  check(actual.size() == expected.size(), "a golden result has another size than its tensor");
  const auto [left, right] = std::mismatch(actual.begin(), actual.end(), expected.begin());
  if (left == actual.end()) return;
  fail_with(fmt::format("{}[{}] is {}, wanted {}", what, left - actual.begin(), *left, *right));
}

void GoldenComparison::selection(const std::vector<double>& actual) {
  if (golden_->ties && dtype_ != DType::kF64) return;
  const std::vector<double> expected = golden_->file.values("mid.sel_idx");
  const std::vector<double> gaps = golden_->file.values("mid.sel_gap");
  check(actual.size() == expected.size(), "the selected blocks have another size than mid.sel_idx");
  const auto width = static_cast<std::size_t>(golden_->geometry.top_n);
  const double clear = clear_gap(*golden_, dtype_);
  for (std::size_t row = 0; row < gaps.size(); ++row) {
    if (!(gaps[row] > clear)) continue;
    for (std::size_t i = row * width; i < (row + 1) * width; ++i) {
      if (actual[i] == expected[i]) continue;
      fail_with(fmt::format("selection from our own scores: block [{}] is {}, wanted {}", i,
                            actual[i], expected[i]));
      return;
    }
  }
}

GoldenResult GoldenComparison::finish() const {
  std::vector<std::string> failures = failures_;
  for (const auto& [name, entry] : golden_->file.entries()) {
    // The gap is no result: it says where a selection may be compared.
    if (name.rfind("in.", 0) == 0 || name == "mid.sel_gap" || compared_.contains(name)) continue;
    failures.push_back(name + " was compared with nothing");
  }
  GoldenResult result;
  result.name = golden_->name;
  result.dtype = dtype_;
  result.detail = fmt::format("largest error {:.1e} of the largest magnitude, in {}", worst_error_,
                              worst_tensor_);
  if (!failures.empty()) {
    result.outcome = GoldenOutcome::kFail;
    result.detail = failures.front();
    if (failures.size() > 1) {
      result.detail += fmt::format(" (and {} more)", failures.size() - 1);
    }
  }
  return result;
}

}  // namespace nsa
