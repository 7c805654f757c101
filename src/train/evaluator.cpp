#include "train/evaluator.h"

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
              *shop.backend.device, shop.config.eval.tokens) {}

std::optional<Validation> Evaluator::evaluate(std::int64_t step, const StepPlan& plan,
                                              const std::function<bool()>& interrupted) {
  loader_.restart(plan.seq_len);
  std::int64_t valid = 0;
  for (;;) {
    if (interrupted()) {
      shop_->model.take_loss_sums();  // the next sums start at zero
      return std::nullopt;
    }
    const Batch batch = loader_.next(plan.micro_batch);
    if (batch.tokens.size() == 0) break;
    shop_->model.evaluate(batch, plan.geometry);
    valid += batch.targets_valid;
  }
  const LossSums sums = shop_->model.take_loss_sums();
  if (valid == 0)
    fail_data(
        "the validation tokens have no target that is not masked; name longer documents in "
        "data.val, or raise eval.tokens");
  return Validation{
      .step = step, .loss = sums.cross_entropy / static_cast<double>(valid), .tokens = valid};
}

}  // namespace nsa
