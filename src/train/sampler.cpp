#include "train/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/bf16.h"
#include "core/philox.h"

namespace nsa {

std::int32_t sample_token(std::span<const double> logits, double temperature, std::int64_t top_k,
                          double uniform) {
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto logit = [&logits](std::int32_t id) { return logits[static_cast<std::size_t>(id)]; };
  std::stable_sort(ids.begin(), ids.end(),
                   [&logit](std::int32_t a, std::int32_t b) { return logit(a) > logit(b); });
  if (temperature <= 0) return ids.front();
  if (top_k > 0 && top_k < static_cast<std::int64_t>(ids.size())) {
    ids.resize(static_cast<std::size_t>(top_k));
  }
  std::vector<double> weights;
  weights.reserve(ids.size());
  for (const std::int32_t id : ids) {
    weights.push_back(std::exp((logit(id) - logit(ids.front())) / temperature));
  }
  double left = uniform * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    left -= weights[i];
    if (left < 0) return ids[i];
  }
  return ids.back();
}

namespace {

/// The elements of a floating tensor, whatever its type.
std::vector<double> read_back(Device& device, const Tensor& tensor) {
  const auto fetch = [&]<class T>(std::vector<T> host) {
    device.copy_to_host(host.data(), tensor.data(), tensor.bytes());
    return host;
  };
  const auto count = static_cast<std::size_t>(tensor.size());
  std::vector<double> values(count);
  if (tensor.dtype() == DType::kBF16) {
    const auto bits = fetch(std::vector<std::uint16_t>(count));
    std::transform(bits.begin(), bits.end(), values.begin(), from_bf16);
  } else {
    with_float(tensor.dtype(), [&]<class T>() {
      const auto host = fetch(std::vector<T>(count));
      values.assign(host.begin(), host.end());
    });
  }
  return values;
}

}  // namespace

Sampler::Sampler(Workshop& shop)
    : shop_(&shop), batch_(*shop.backend.device, shop.schedule.page()) {}

std::vector<double> Sampler::next_logits(const std::vector<std::int32_t>& tokens,
                                         const NsaGeometry& geometry) {
  const auto rows = static_cast<std::int64_t>(tokens.size());
  const Tensor logits = shop_->model.logits(batch_.make(tokens, rows), geometry, rows - 1);
  std::vector<double> values = read_back(*shop_->backend.device, logits);
  // A padded model vocabulary has rows that no text stands behind.
  values.resize(static_cast<std::size_t>(shop_->data.tokenizer->vocab_size()));
  return values;
}

std::string Sampler::complete(std::int64_t step, std::int64_t prompt, const StepPlan& plan) {
  // Apart from the streams of the weights and of the data order, which use the seed as it is.
  constexpr std::uint64_t kStream = 0x73616d706c657321ULL;
  const SampleConfig& config = shop_->config.eval.sample;
  const Tokenizer& tokenizer = *shop_->data.tokenizer;
  std::vector<std::int32_t> tokens =
      tokenizer.encode(config.prompts[static_cast<std::size_t>(prompt)]);
  const std::int64_t end = shop_->config.tokenizer.eos_id.value_or(tokenizer.eos_id());
  if (tokens.empty()) tokens.push_back(static_cast<std::int32_t>(std::max<std::int64_t>(end, 0)));
  if (static_cast<std::int64_t>(tokens.size()) > plan.seq_len) {
    tokens.resize(static_cast<std::size_t>(plan.seq_len));
  }
  for (std::int64_t i = 0; i < config.tokens; ++i) {
    if (static_cast<std::int64_t>(tokens.size()) >= plan.seq_len) break;
    const std::vector<double> logits = next_logits(tokens, plan.geometry);
    const auto bits =
        philox(shop_->config.run.seed ^ kStream, static_cast<std::uint64_t>(step),
               (static_cast<std::uint64_t>(prompt) << 32U) | static_cast<std::uint64_t>(i));
    const std::int32_t id =
        sample_token(logits, config.temperature, config.top_k, uniform_open(bits[0]));
    if (id == end) break;
    tokens.push_back(id);
  }
  return tokenizer.decode(tokens);
}

}  // namespace nsa
