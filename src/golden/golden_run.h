#pragma once

// One run of one golden file; golden_runner.h is the door.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"
#include "golden/golden_case.h"
#include "golden/golden_compare.h"
#include "golden/workspace.h"
#include "ops/backend.h"

namespace nsa {

/// One run of one file: the ops in the order of a training step. What stands in the file is
/// compared as soon as it is made; each op is fed by the ones before it, except that the selected
/// blocks are the file's.
class GoldenRun {
 public:
  GoldenRun(Backend& backend, const GoldenCase& golden, DType dtype)
      : ops_(*backend.ops),
        golden_(golden),
        work_(*backend.device, dtype),
        compare_(golden, dtype),
        stat_(stat_dtype(dtype)),
        parts_(projection_parts(golden)),
        documents_{.bounds = golden.bounds,
                   .device_bounds =
                       work_.upload(DType::kI32, {static_cast<std::int64_t>(golden.bounds.size())},
                                    {golden.bounds.begin(), golden.bounds.end()})},
        rows_(compressed_rows(documents_, golden.geometry)) {
    for (const ProjectionPart& part : parts_) columns_ += part.width();
  }

  GoldenResult run() {
    project();
    split();
    compress();
    attend_compressed();
    attend_selected();
    attend_window();
    combine();
    differentiate_gates();
    differentiate_branches();
    differentiate_compression();
    differentiate_projection();
    return compare_.finish();
  }

 private:
  // Forward.
  void project();
  void compare_projection();
  void split();
  void compress();
  void attend_compressed();
  void check_selection();
  void attend_selected();
  void attend_window();
  void combine();
  // Backward.
  void differentiate_gates();
  void differentiate_branches();
  void differentiate_compression();
  void differentiate_projection();

  Tensor input(const std::string& name) {
    const std::vector<std::int64_t>& shape = golden_.file.entry("in." + name).shape;
    const std::vector<double> values = golden_.file.values("in." + name);
    if (shape.size() == 1) return work_.upload({shape[0]}, values);
    check(shape.size() == 2, "input() is for tensors of rank 1 and 2");
    return work_.upload({shape[0], shape[1]}, values);
  }
  Tensor per_query(std::int64_t dim) { return work_.result({tokens(), golden_.heads, dim}); }
  Tensor per_key(std::int64_t rows, std::int64_t dim) {
    return work_.result({rows, golden_.kv_heads, dim});
  }
  Tensor statistics(std::initializer_list<std::int64_t> shape) {
    return work_.result(stat_, shape);
  }
  void near(const std::string& name, const Tensor& tensor) {
    compare_.near(name, work_.download(tensor));
  }
  std::int64_t tokens() const { return golden_.tokens(); }
  RopeSpec compressed_rope() const {
    return golden_.compress_rope == CompressRope::kAfter ? golden_.rope : RopeSpec{};
  }
  PhiWeights phi_weights(const std::string& which);
  PhiWeights phi_gradients(const PhiWeights& weights);
  CompressForward compression(const Tensor& out, const Tensor& x, const PhiWeights& weights);
  void compare_phi(const std::string& which, const PhiWeights& gradients);
  std::vector<double> part_of(const std::vector<double>& rows, std::size_t part) const;
  std::vector<double> turned_back(std::vector<double> rows) const;

  Ops& ops_;
  const GoldenCase& golden_;
  Workspace work_;
  GoldenComparison compare_;
  DType stat_;
  std::vector<ProjectionPart> parts_;
  Documents documents_;
  std::int64_t rows_ = 0;     ///< compressed rows
  std::int64_t columns_ = 0;  ///< of the projection

  Tensor x_, weight_, projection_;  ///< the first two in a layer alone
  SplitRopeForward split_;
  PhiWeights phi_k_, phi_v_;
  Tensor kt_, vt_;
  Tensor blocks_;
  std::array<Tensor, 3> out_, lse_;  ///< of the branches
  Tensor combined_, gates_;
  Tensor dout_, dlogits_, dbias_, deltas_;
  Tensor dq_;
  std::array<KvPair, 3> dpairs_;
};

}  // namespace nsa
