#pragma once

// Comparison of results with the expected tensors of a golden file, tensor by tensor.

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "golden/golden_case.h"

namespace nsa {

enum class GoldenOutcome : std::uint8_t { kPass, kFail, kSkip };

/// What one file gave in one element type.
struct GoldenResult {
  std::string name;
  DType dtype = DType::kF64;
  GoldenOutcome outcome = GoldenOutcome::kPass;
  std::string detail;  ///< the largest error and its tensor, or why it was skipped
};

/// "nodiv_T fp32 PASS ..."
std::string describe(const GoldenResult& result);

/// Collects the comparisons of one run. Allowed errors: in fp64 1e-6 of the largest magnitude of
/// the tensor (files are rounded to fp32), in fp32 1e-5 and for gradients 5e-5, in bf16 2e-2 and
/// 3e-2; where the tensor is all zero 1e-7, 1e-6 and 1e-2. Non-finite elements must agree in place
/// and sign.
class GoldenComparison {
 public:
  GoldenComparison(const GoldenCase& golden, DType dtype) : golden_(&golden), dtype_(dtype) {}

  /// Against the tensor of this name; gradients are those named grad.*.
  void near(const std::string& tensor, const std::vector<double>& actual);
  /// The same numbers; one difference fails.
  void exact(const std::string& tensor, const std::vector<double>& actual);
  /// As exact(), for two results of ours: `what` stands for the tensor in the report.
  void equal(const std::string& what, const std::vector<double>& actual,
             const std::vector<double>& expected);
  /// Selected blocks against mid.sel_idx, on rows whose choice is not close.
  void selection(const std::vector<double>& actual);

  /// Fails also where the file has results that nothing was compared with.
  GoldenResult finish() const;

 private:
  void fail_with(const std::string& detail);

  const GoldenCase* golden_;
  DType dtype_;
  std::set<std::string> compared_;
  std::vector<std::string> failures_;
  double worst_ = -1;  ///< largest error / allowed error
  double worst_error_ = 0;
  std::string worst_tensor_;
};

}  // namespace nsa
