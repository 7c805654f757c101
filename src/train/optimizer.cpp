#include "train/optimizer.h"

#include <cmath>

namespace nsa {

Optimizer::Optimizer(const OptimConfig& config, ParameterStore& store, Backend& backend)
    : config_(config),
      store_(&store),
      backend_(&backend),
      square_sum_memory_(*backend.device, size_of(DType::kF64)),
      square_sum_(square_sum_memory_.view(DType::kF64, {1})) {
  ranges_.reserve(store.layout().parameters().size());
}

double Optimizer::gradient_norm(double grad_scale) {
  backend_->device->fill_zero(square_sum_.data(), square_sum_.bytes());
  backend_->ops->run(SumSquares{.sum = square_sum_, .x = store_->gradients()});
  double square_sum = 0;
  backend_->device->copy_to_host(&square_sum, square_sum_.data(), square_sum_.bytes());
  return grad_scale * std::sqrt(square_sum);
}

void Optimizer::update(const StepPlan& plan, double grad_scale) {
  const Layout& layout = store_->layout();
  ranges_.clear();
  for (std::size_t i = 0; i < layout.parameters().size(); ++i) {
    const Parameter& parameter = layout.parameters()[i];
    if (!layout.is_trained(parameter, plan.geometry.rate, plan.seq_len)) continue;
    const std::int64_t begin = layout.begin(parameter);
    ranges_.push_back({.begin = begin,
                       .end = begin + parameter.size(),
                       .updates = ++store_->updates()[i],
                       .weight_decay = parameter.decay ? config_.weight_decay : 0.0});
  }
  backend_->ops->run(AdamW{.weights = store_->weights(),
                           .master = store_->master(),
                           .m = store_->m(),
                           .v = store_->v(),
                           .grad = store_->gradients(),
                           .grad_square_sum = square_sum_,
                           .ranges = ranges_,
                           .learning_rate = plan.learning_rate,
                           .beta1 = config_.beta1,
                           .beta2 = config_.beta2,
                           .eps = config_.eps,
                           .max_norm = config_.clip,
                           .grad_scale = grad_scale,
                           .rounding_key = static_cast<std::uint64_t>(plan.step)});
}

}  // namespace nsa
