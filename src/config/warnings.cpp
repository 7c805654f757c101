// What works but is probably not meant. Source: NSA section 3.3 for the block counts; the rest is
// cost and accuracy as measured or counted.

#include <algorithm>

#include "config/device.h"
#include "config/resolve.h"
#include "config/validate.h"
#include "core/format.h"

namespace nsa::settings {
namespace {

constexpr std::int64_t kQuadraticFrom = 4096;    ///< tokens: rate 1 costs what dense costs
constexpr std::int64_t kSparseGainsFrom = 3072;  ///< tokens: below, NSA costs more than dense
constexpr std::int64_t kTensorCoreRows = 16;     ///< query heads of a KV head that fill a tile

using Warnings = std::vector<std::string>;

void warn_stage(const Draft& draft, std::size_t index, Warnings& warnings) {
  const AttentionConfig& attention = draft.config.attention;
  const StageConfig& stage = draft.config.schedule.stages[index];
  const NsaGeometry geometry = geometry_of(attention, stage.rate);
  const auto add = [&](const std::string& leaf, const std::string& what) {
    const Origin origin = origin_of(draft, index, leaf);
    warnings.push_back(fmt::format("{}: {} {}", origin.where, origin.name, what));
  };
  if (attention.selected && stage.seq_len <= attention.select.top_n * attention.select.block) {
    add("seq_len", fmt::format("is {}: selection takes every block (top_n {} x block {})",
                               stage.seq_len, attention.select.top_n, attention.select.block));
  }
  if (attention.window_branch && attention.window >= stage.seq_len) {
    add("seq_len",
        fmt::format("is {}: the window ({}) covers all of it", stage.seq_len, attention.window));
  }
  if (stage.seq_len < geometry.compress_block()) {
    add("seq_len", fmt::format("is {}: shorter than one compressed block ({}), so that branch is "
                               "dead",
                               stage.seq_len, geometry.compress_block()));
  }
  if (stage.rate == 1 && stage.seq_len > kQuadraticFrom) {
    add("rate",
        fmt::format("is 1 at context length {}: the cost is quadratic in it", stage.seq_len));
  }
  const std::int64_t length = geometry.compress_block();
  const std::int64_t bins = attention.compress.bins;
  if (attention.compress.phi == Phi::kPoolMlp && length % bins != 0 && bins % length != 0) {
    add("rate", fmt::format("is {}: a block of {} tokens and {} bins do not divide each other, so "
                            "pooling weights are interpolated",
                            stage.rate, length, bins));
  }
  if (stage.seq_len < kSparseGainsFrom) {
    add("seq_len", fmt::format("is {}: NSA costs more than dense attention below about {} tokens",
                               stage.seq_len, kSparseGainsFrom));
  }
}

void warn_rates(const Draft& draft, Warnings& warnings) {
  const std::vector<StageConfig>& stages = draft.config.schedule.stages;
  for (std::size_t i = 1; i < stages.size(); ++i) {
    if (stages[i].seq_len <= stages[i - 1].seq_len || stages[i].rate >= stages[i - 1].rate)
      continue;
    const Origin origin = origin_of(draft, i, "rate");
    warnings.push_back(fmt::format("{}: {} is {}: it falls from {} while the context grows",
                                   origin.where, origin.name, stages[i].rate, stages[i - 1].rate));
  }
}

void warn_attention(const Draft& draft, Warnings& warnings) {
  const Config& config = draft.config;
  const AttentionConfig& attention = config.attention;
  for (std::size_t i = 0; i < config.schedule.stages.size(); ++i) warn_stage(draft, i, warnings);
  warn_rates(draft, warnings);
  const auto add = [&](const std::string& key, const std::string& what) {
    warnings.push_back(fmt::format("{}: {} {}", draft.where(key), key, what));
  };
  const std::int64_t group = config.model.heads / config.model.kv_heads;
  if (runs_on_gpu(config) && group < kTensorCoreRows) {
    add("model.kv_heads", fmt::format("is {}: {} query heads per KV head leave rows of a {}-row "
                                      "tile empty",
                                      config.model.kv_heads, group, kTensorCoreRows));
  }
  if (attention.compress.rope == CompressRope::kBefore && attention.compress.phi == Phi::kMlpFlat) {
    add("attention.compress.rope", "is before: mlp_flat then mixes keys of different rotations");
  }
  if (attention.share_kv) {
    add("attention.share_kv", "is true: NSA has its own keys and values in each branch");
  }
}

/// A configuration that a run wrote names the micro-batch of each stage, and an override of
/// train.micro_batch is then lost.
void warn_micro_batch(const Draft& draft, Warnings& warnings) {
  const std::string where = draft.where("train.micro_batch");
  const bool all_own = !draft.stages.empty() &&
                       std::all_of(draft.stages.begin(), draft.stages.end(), [](const auto& stage) {
                         return stage.places.count("micro_batch") > 0;
                       });
  if (all_own && where.rfind("override ", 0) == 0) {
    warnings.push_back(where +
                       ": train.micro_batch has no effect: every entry of schedule.stages has a "
                       "micro_batch of its own");
  }
}

}  // namespace

std::vector<std::string> find_warnings(const Draft& draft) {
  Warnings warnings;
  if (draft.config.attention.kind == AttentionKind::kNsa) warn_attention(draft, warnings);
  warn_micro_batch(draft, warnings);
  const Config& config = draft.config;
  if (config.data.val.empty() && config.eval.every > 0) {
    warnings.push_back(draft.where("data.val") + ": data.val is not set: there is no validation");
  }
  return warnings;
}

}  // namespace nsa::settings
