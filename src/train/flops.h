#pragma once

// How many (query, key) pairs attention visits, and how many operations a token costs: what a run's
// time and its reported density follow.

#include <algorithm>
#include <cstdint>

#include "config/config.h"
#include "ops/nsa_geometry.h"

namespace nsa {

/// Pairs of one document of `tokens` tokens, per query head. Exact integers; a closed form, so that
/// a report costs nothing at any context length.
constexpr std::int64_t pairs_full(std::int64_t tokens) {
  return tokens * (tokens + 1) / 2;
}

/// The compressed branch: compressed block i is seen by the queries from its last token on.
constexpr std::int64_t pairs_compressed(std::int64_t tokens, const NsaGeometry& geometry) {
  const std::int64_t block = geometry.compress_block();
  const std::int64_t stride = geometry.compress_stride();
  if (tokens < block) return 0;
  const std::int64_t blocks = (tokens - block) / stride + 1;
  return blocks * (tokens - block + 1) - stride * blocks * (blocks - 1) / 2;
}

constexpr std::int64_t pairs_window(std::int64_t tokens, const NsaGeometry& geometry) {
  const std::int64_t window = geometry.window;
  if (tokens <= window) return pairs_full(tokens);
  return pairs_full(window) + (tokens - window) * window;
}

/// The selected branch: every query reads its own block up to itself, and all of up to top_n - 1
/// earlier ones.
constexpr std::int64_t pairs_selected(std::int64_t tokens, const NsaGeometry& geometry) {
  const std::int64_t block = geometry.select_block;
  const std::int64_t top_n = geometry.top_n;
  const std::int64_t whole = tokens / block;
  const std::int64_t rest = tokens % block;
  const std::int64_t earlier = whole <= top_n
                                   ? whole * (whole - 1) / 2
                                   : top_n * (top_n - 1) / 2 + (whole - top_n) * (top_n - 1);
  return block * block * earlier + whole * pairs_full(block) +
         rest * (std::min(top_n, whole + 1) - 1) * block + pairs_full(rest);
}

/// Pairs of an NSA layer over the pairs of dense causal attention, at one document of `tokens`
/// tokens. Above 1 where NSA costs more than dense: three branches at a short context.
inline double attention_density(std::int64_t tokens, const NsaGeometry& geometry,
                                const AttentionConfig& attention) {
  std::int64_t pairs = 0;
  // The selected branch is scored by the compressed keys even where their own branch is off.
  if (attention.compressed || attention.selected) pairs += pairs_compressed(tokens, geometry);
  if (attention.selected) pairs += pairs_selected(tokens, geometry);
  if (attention.window_branch) pairs += pairs_window(tokens, geometry);
  return static_cast<double>(pairs) / static_cast<double>(pairs_full(tokens));
}

/// Model FLOPs of the forward pass, averaged over the tokens of one document; a multiply-add counts
/// two. Only what the result needs: exact causal pairs, no recomputation, no pass that only scores
/// blocks, nothing that a mask throws away.
struct ForwardFlops {
  double projections = 0;  ///< of attention, the output projection included
  double compressor = 0;
  double attention = 0;  ///< scores and weighted sums over all pairs of all branches
  double mlp = 0;
  double head = 0;
  double total() const { return projections + compressor + attention + mlp + head; }
};

/// The layers of `config` at one document of `tokens` tokens.
ForwardFlops forward_flops(const Config& config, std::int64_t tokens, const NsaGeometry& geometry);

/// Every product of the forward has two in the backward.
constexpr double kTrainingPerForward = 3;

}  // namespace nsa
