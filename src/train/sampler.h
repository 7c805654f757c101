#pragma once

// Sampler: text that the model goes on with, to look at while it trains.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "train/own_batch.h"
#include "train/workshop.h"

namespace nsa {

/// Draws an id from softmax(logits / temperature) over the top_k largest logits (0: all), by
/// inversion of `uniform` in (0, 1). Temperature 0: the largest; ties go to the lower id.
std::int32_t sample_token(std::span<const double> logits, double temperature, std::int64_t top_k,
                          double uniform);

class Sampler {
 public:
  /// The workshop must have a tokenizer and outlive this.
  explicit Sampler(Workshop& shop);

  /// The prompt and up to eval.sample.tokens more tokens, as text, in the context length and
  /// geometry of `plan`'s stage; tokenizer.eos_id (or the tokenizer's own) ends it. A function of
  /// (run.seed, step, prompt, weights) alone.
  std::string complete(std::int64_t step, std::int64_t prompt, const StepPlan& plan);

 private:
  std::vector<double> next_logits(const std::vector<std::int32_t>& tokens,
                                  const NsaGeometry& geometry);

  Workshop* shop_;
  OwnBatch batch_;
};

}  // namespace nsa
