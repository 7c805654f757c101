#pragma once

// One block's weights, gradients and activations, for tests of a sublayer by itself.

#include <string>
#include <vector>

#include "model/activations.h"
#include "model/small_model.h"
#include "model/step.h"

namespace nsa::test {

/// Layer 0 of a model of `config` in double, with activations laid out for the documents.
class Sublayer {
 public:
  Sublayer(const Config& config, const std::vector<std::int64_t>& lengths, Keep keep)
      : model_(config),
        documents_(lengths),
        layers_{block_parameters(model_.store(), 0)},
        activations_(config, layers_, DType::kF64) {
    const Documents documents = documents_;
    const PlanShape shape{.rows = documents.tokens(),
                          .compressed_rows = compressed_rows(documents, model_.geometry()),
                          .keep = keep};
    activations_.allocate(*model_.backend().device, activations_.measure(shape));
    activations_.plan(shape);
  }

  Step step() {
    return {.ops = *model_.backend().ops,
            .documents = documents_,
            .geometry = model_.geometry(),
            .reuse_blocks = false};
  }
  const BlockWeights& weights() const { return layers_[0].weights; }
  const BlockWeights& gradients() const { return layers_[0].gradients; }
  const BlockParameters& parameters() const { return layers_[0]; }
  const BlockActivations& block() const { return activations_.blocks[0]; }
  const Activations& activations() const { return activations_; }
  ParameterStore& store() { return model_.store(); }

  /// Writes into a tensor of doubles.
  static void fill(const Tensor& tensor, const std::vector<double>& values) {
    for (std::int64_t i = 0; i < tensor.size(); ++i) {
      tensor.as<double>()[i] = values.at(static_cast<std::size_t>(i));
    }
  }
  static void fill_normal(const Tensor& tensor, std::uint64_t seed) {
    for (std::int64_t i = 0; i < tensor.size(); ++i) {
      tensor.as<double>()[i] = philox_normal(seed, 0, static_cast<std::uint64_t>(i));
    }
  }
  static std::vector<double> values(const Tensor& tensor) { return SmallModel::values_of(tensor); }

 private:
  SmallModel model_;
  OwnedDocuments documents_;
  std::vector<BlockParameters> layers_;
  Activations activations_;
};

/// max |actual - expected| / max |expected|.
inline double relative_error(const std::vector<double>& actual,
                             const std::vector<double>& expected) {
  double worst = actual.size() == expected.size() ? 0 : 1e300;
  double largest = 0;
  for (std::size_t i = 0; i < std::min(actual.size(), expected.size()); ++i) {
    worst = std::max(worst, std::abs(actual[i] - expected[i]));
    largest = std::max(largest, std::abs(expected[i]));
  }
  return largest == 0 ? worst : worst / largest;
}

}  // namespace nsa::test
