#pragma once

// Small model configurations, resolved, as config/resolve would leave them.

#include "config/config.h"

namespace nsa::test {

/// Two NSA layers on which every mechanism acts within 30 tokens: overlapping compressed blocks of
/// 4, more selection blocks than are taken, a window shorter than the text, two heads a KV head.
inline Config small_config() {
  Config config;
  config.model = {.preset = "",
                  .vocab_size = 13,
                  .layers = 2,
                  .hidden = 16,
                  .heads = 4,
                  .kv_heads = 2,
                  .head_dim = 8,
                  .v_head_dim = 8,
                  .ffn = 24,
                  .rope_dim = 8};
  config.attention.compress.rate = 2;
  config.attention.compress.hidden_key = 8;
  config.attention.compress.hidden_value = 8;
  config.attention.compress.bins = 8;
  config.attention.select = {.block = 4, .top_n = 4, .initial = 1, .local = 2};
  config.attention.window = 6;
  return config;
}

inline NsaGeometry geometry_of(const Config& config) {
  return nsa::geometry_of(config.attention, config.attention.compress.rate);
}

}  // namespace nsa::test
