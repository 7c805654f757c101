#include "train/evaluator.h"

#include <algorithm>

#include "core/error.h"

namespace nsa {

Evaluator::Evaluator(Workshop& shop)
    : shop_(&shop),
      loader_(*shop.data.val,
              LoaderOptions{.page = shop.schedule.page(),
                            .seed = shop.config.run.seed,
                            .shuffle = false,
                            .doc_mask = shop.config.data.doc_mask,
                            .max_rows = shop.largest_rows(),
                            .vocab_size = shop.config.model.vocab_size},
              *shop.backend.device, shop.config.eval.tokens),
      token_loss_(*shop.backend.device,
                  shop.largest_rows() * size_of(stat_dtype(shop.store.dtype()))) {}

/// Brings the losses of a batch that has been evaluated to the host.
void Evaluator::add_losses(PositionLoss& by_position, const Batch& batch) {
  const std::int64_t rows = batch.tokens.dim(0);
  const Tensor losses = token_loss_.view(stat_dtype(shop_->store.dtype()), {rows});
  targets_.resize(static_cast<std::size_t>(rows));
  losses_.resize(static_cast<std::size_t>(rows));
  Device& device = *shop_->backend.device;
  device.copy_to_host(targets_.data(), batch.targets.data(), batch.targets.bytes());
  if (losses.dtype() == DType::kF32) {
    device.copy_to_host(losses_.data(), losses.data(), losses.bytes());
  } else {
    std::vector<double> exact(losses_.size());
    device.copy_to_host(exact.data(), losses.data(), losses.bytes());
    std::transform(exact.begin(), exact.end(), losses_.begin(),
                   [](double loss) { return static_cast<float>(loss); });
  }
  by_position.add(batch.documents, targets_, losses_);
}

std::optional<Evaluation> Evaluator::evaluate(std::int64_t step, const StepPlan& plan,
                                              const std::function<bool()>& interrupted) {
  loader_.restart(plan.seq_len);
  std::int64_t valid = 0;
  PositionLoss by_position(plan.seq_len);
  for (;;) {
    if (interrupted()) {
      shop_->model.take_loss_sums();  // the next sums start at zero
      return std::nullopt;
    }
    const Batch batch = loader_.next(plan.micro_batch);
    if (batch.tokens.size() == 0) break;
    const std::int64_t rows = batch.tokens.dim(0);
    shop_->model.evaluate(batch, plan.geometry,
                          token_loss_.view(stat_dtype(shop_->store.dtype()), {rows}));
    add_losses(by_position, batch);
    valid += batch.targets_valid;
  }
  const LossSums sums = shop_->model.take_loss_sums();
  if (valid == 0)
    fail_data(
        "the validation tokens have no target that is not masked; name longer documents in "
        "data.val, or raise eval.tokens");
  return Evaluation{.validation = {.step = step,
                                   .loss = sums.cross_entropy / static_cast<double>(valid),
                                   .tokens = valid},
                    .by_position = by_position.buckets()};
}

}  // namespace nsa
