#pragma once

// ParameterStore: the flat buffers of weights, gradients and optimiser state.

#include <cstdint>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "ops/backend.h"
#include "params/layout.h"

namespace nsa {

/// How the optimiser's state is held.
struct StateStorage {
  bool bf16_moments = false;  ///< m and v in bf16, beside masters in fp32
  bool on_host = false;       ///< masters that are not the weights themselves, m and v
};

/// Owns, for the whole run: weights (what the model computes with), gradients, master, m, v, each
/// layout.size() elements. When compute and master types agree, weights and master are one buffer;
/// bf16 weights are copies of fp32 masters.
class ParameterStore {
 public:
  /// Everything zero. Gradients and master have grad_dtype(compute), as m and v unless `state` says
  /// bf16.
  ParameterStore(const Layout& layout, Backend& backend, DType compute, StateStorage state = {});

  const Layout& layout() const { return layout_; }
  DType dtype() const { return dtype_; }  ///< of the weights
  DType master_dtype() const { return grad_dtype(dtype_); }
  DType moment_dtype() const { return state_.bf16_moments ? DType::kBF16 : master_dtype(); }

  /// Initial weights: element i of parameter p is a function of (seed, name of p, i) alone.
  void initialize(std::uint64_t seed);

  /// Views of one parameter, in its shape.
  Tensor weight(const std::string& name) const;
  Tensor gradient(const std::string& name) const;
  /// One [sum of rows, columns] view over adjacent parameters `first` to `last`, all of them
  /// matrices with equal columns.
  Tensor fused_weight(const std::string& first, const std::string& last) const;
  Tensor fused_gradient(const std::string& first, const std::string& last) const;

  /// The flat buffers, [layout().size()].
  Tensor weights() const { return weights_view_; }
  Tensor gradients() const { return gradients_view_; }
  Tensor master() const { return master_view_; }
  Tensor m() const { return m_view_; }
  Tensor v() const { return v_view_; }

  /// How often the optimiser has updated each parameter, in layout order (bias correction).
  std::vector<std::int64_t>& updates() { return updates_; }
  const std::vector<std::int64_t>& updates() const { return updates_; }

  void zero_gradients();
  /// After master was written: weights = master, rounded.
  void publish();

 private:
  Tensor zeros(Buffer& buffer, DType dtype, bool on_host = false);
  Tensor view(const Tensor& flat, const std::string& name) const;
  Tensor fused_view(const Tensor& flat, const std::string& first, const std::string& last) const;

  Layout layout_;
  Device* device_;
  Ops* ops_;
  DType dtype_;
  StateStorage state_;
  Buffer weights_, master_, gradients_, m_, v_;
  Tensor weights_view_, gradients_view_, master_view_, m_view_, v_view_;
  std::vector<std::int64_t> updates_;
};

}  // namespace nsa
