#include "model/weights.h"

#include <string>

namespace nsa {
namespace {

/// Either the weights or the gradients of a store.
class Views {
 public:
  Views(const ParameterStore& store, bool gradients) : store_(store), gradients_(gradients) {}

  bool has(const std::string& name) const { return store_.layout().has(name); }
  Tensor get(const std::string& name) const {
    return gradients_ ? store_.gradient(name) : store_.weight(name);
  }
  /// Undefined where the model has no such parameter.
  Tensor get_optional(const std::string& name) const { return has(name) ? get(name) : Tensor(); }
  Tensor get_fused(const std::string& first, const std::string& last) const {
    return gradients_ ? store_.fused_gradient(first, last) : store_.fused_weight(first, last);
  }

 private:
  const ParameterStore& store_;
  bool gradients_;
};

PhiWeights phi_weights(const Views& views, const std::string& prefix) {
  return {.theta = views.get_optional(prefix + "theta"),
          .position = views.get_optional(prefix + "position"),
          .w1 = views.get_optional(prefix + "w1"),
          .b1 = views.get_optional(prefix + "b1"),
          .w2 = views.get_optional(prefix + "w2")};
}

BlockWeights block_weights(const Views& views, const std::string& prefix) {
  const std::string attn = prefix + "attn.";
  const std::string mlp = prefix + "mlp.";
  const std::string last_projection = views.has(attn + "gate") ? attn + "gate" : attn + "v";
  return {.attention = {.norm = views.get(prefix + "attn_norm.weight"),
                        .projection = views.get_fused(attn + "q", last_projection),
                        .gate_bias = views.get_optional(attn + "gate_bias"),
                        .out = views.get(attn + "out"),
                        .q_norm = views.get_optional(attn + "q_norm"),
                        .k_norm = views.get_optional(attn + "k_norm"),
                        .phi_k = phi_weights(views, attn + "phi_k."),
                        .phi_v = phi_weights(views, attn + "phi_v.")},
          .mlp = {.norm = views.get(prefix + "mlp_norm.weight"),
                  .gate_up = views.get_fused(mlp + "gate", mlp + "up"),
                  .down = views.get(mlp + "down")}};
}

HeadWeights head_weights(const Views& views) {
  const bool tied = !views.has("head.weight");
  return {.embedding = views.get("embedding.weight"),
          .norm = views.get("head.norm.weight"),
          .head = views.get(tied ? "embedding.weight" : "head.weight")};
}

}  // namespace

BlockParameters block_parameters(const ParameterStore& store, std::int64_t layer) {
  const std::string prefix = "blocks." + std::to_string(layer) + ".";
  return {.weights = block_weights(Views(store, false), prefix),
          .gradients = block_weights(Views(store, true), prefix)};
}

HeadParameters head_parameters(const ParameterStore& store) {
  return {.weights = head_weights(Views(store, false)),
          .gradients = head_weights(Views(store, true))};
}

}  // namespace nsa
