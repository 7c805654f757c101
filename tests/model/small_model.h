#pragma once

// A small transformer with everything it needs, random weights of healthy size, and batches.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/philox.h"
#include "model/transformer.h"
#include "support/model_config.h"
#include "support/owned.h"

namespace nsa::test {

/// A batch that owns its memory. Documents of the given lengths, random tokens and targets; every
/// seventh row has no target.
class OwnedBatch {
 public:
  OwnedBatch(const std::vector<std::int64_t>& lengths, std::int64_t vocab_size,
             std::uint64_t seed = 5)
      : documents_(lengths) {
    const std::int64_t rows = static_cast<Documents>(documents_).tokens();
    tokens_ = Owned(DType::kI32, {rows});
    targets_ = Owned(DType::kI32, {rows});
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto bits = philox(seed, 0, static_cast<std::uint64_t>(row));
      const auto limit = static_cast<std::uint32_t>(vocab_size);
      tokens_.set(row, bits[0] % limit);
      targets_.set(row, row % 7 == 6 ? static_cast<double>(kIgnoredTarget)
                                     : static_cast<double>(bits[1] % limit));
    }
  }
  const Owned& tokens() const { return tokens_; }
  const Owned& targets() const { return targets_; }
  std::int64_t rows() const { return tokens_.size(); }
  operator Batch() const {  // NOLINT: reads as the batch it owns
    Batch batch;
    batch.tokens = tokens_;
    batch.targets = targets_;
    batch.documents = documents_;
    for (std::int64_t row = 0; row < rows(); ++row) {
      batch.targets_valid += targets_.get(row) == kIgnoredTarget ? 0 : 1;
    }
    return batch;
  }

  /// Copies `count` rows of another batch to row `to`.
  void copy_rows(const OwnedBatch& from, std::int64_t begin, std::int64_t count, std::int64_t to) {
    for (std::int64_t i = 0; i < count; ++i) {
      tokens_.set(to + i, from.tokens_.get(begin + i));
      targets_.set(to + i, from.targets_.get(begin + i));
    }
  }

 private:
  OwnedDocuments documents_;
  Owned tokens_, targets_;
};

/// Backend, store and transformer; planned for up to 64 rows at the rate of the configuration.
class SmallModel {
 public:
  explicit SmallModel(const Config& config, DType dtype = DType::kF64, int threads = 1)
      : backend_(make_backend("cpu", threads)),
        layout_(config),
        store_(layout_, backend_, dtype),
        geometry_(geometry_of(config)) {
    randomize();
    transformer_ = std::make_unique<Transformer>(
        config, store_, backend_,
        std::vector<MicroShape>{{.rows = 64, .longest = 64, .geometry = geometry_}});
  }

  Transformer& transformer() { return *transformer_; }
  ParameterStore& store() { return store_; }
  Backend& backend() { return backend_; }
  const Layout& layout() const { return layout_; }
  const NsaGeometry& geometry() const { return geometry_; }

  void train(const OwnedBatch& batch, double grad_scale = 1) {
    transformer_->train_micro(batch, geometry_, grad_scale);
  }
  /// Cross-entropy + z-loss of a batch.
  double loss(const OwnedBatch& batch) {
    transformer_->take_loss_sums();
    transformer_->evaluate(batch, geometry_);
    const LossSums sums = transformer_->take_loss_sums();
    return sums.cross_entropy + sums.z_loss;
  }
  /// Loss of each row.
  std::vector<double> token_losses(const OwnedBatch& batch) {
    const Owned losses(stat_dtype(store_.dtype()), {batch.rows()});
    transformer_->evaluate(batch, geometry_, losses);
    return losses.values();
  }
  /// A copy of the gradients, padding included.
  std::vector<double> gradients() const { return values_of(store_.gradients()); }
  std::vector<double> gradient(const std::string& name) const {
    return values_of(store_.gradient(name));
  }

  static std::vector<double> values_of(const Tensor& tensor) {
    std::vector<double> values(static_cast<std::size_t>(tensor.size()));
    if (tensor.dtype() == DType::kI32) {
      std::copy_n(tensor.as<std::int32_t>(), values.size(), values.begin());
      return values;
    }
    with_float(tensor.dtype(), [&]<class T>() {
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<double>(tensor.as<T>()[i]);
      }
    });
    return values;
  }

 private:
  /// Large enough that every mechanism matters to the loss, unlike the initial weights of training.
  void randomize() {
    for (std::size_t p = 0; p < layout_.parameters().size(); ++p) {
      const Parameter& parameter = layout_.parameters()[p];
      const bool matrix = parameter.decay;
      const double std =
          matrix ? 0.8 / std::sqrt(static_cast<double>(parameter.shape.back())) : 0.3;
      const double centre = parameter.init == Init::kOne ? 1.0 : 0.0;
      const Tensor weight = store_.weight(parameter.name);
      with_float(store_.dtype(), [&]<class T>() {
        for (std::int64_t i = 0; i < weight.size(); ++i) {
          const double normal = philox_normal(77, p, static_cast<std::uint64_t>(i));
          weight.as<T>()[i] = static_cast<T>(centre + std * normal);
        }
      });
    }
  }

  Backend backend_;
  Layout layout_;
  ParameterStore store_;
  NsaGeometry geometry_;
  std::unique_ptr<Transformer> transformer_;
};

}  // namespace nsa::test
