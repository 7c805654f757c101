#pragma once

// Model sizes by name.

#include <string>
#include <vector>

#include "config/config.h"
#include "config/draft.h"

namespace nsa {

/// A model size: what it sets in model.*, the head dimension included.
struct Preset {
  const char* name;
  std::int64_t vocab_size, hidden, layers, heads, kv_heads, head_dim, ffn;
};

/// The preset of that name, or null.
const Preset* find_preset(const std::string& name);
std::vector<std::string> preset_names();

namespace settings {
void apply_preset(const Preset& preset, Draft& draft);
}  // namespace settings

}  // namespace nsa
