#include "config/presets.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace nsa {
namespace {

// vocab_size, hidden, layers, heads, kv_heads, head_dim, ffn
constexpr std::array kPresets = {
    Preset{"tiny", 2048, 128, 4, 4, 1, 32, 344},
    Preset{"110m", 32768, 768, 12, 12, 12, 64, 2048},
    Preset{"350m", 32768, 1024, 24, 16, 1, 64, 2816},
    Preset{"1b", 32768, 2048, 16, 16, 1, 128, 5632},
    Preset{"3b", 32768, 2560, 30, 32, 2, 128, 7680},
    Preset{"7b", 32768, 4096, 32, 32, 2, 128, 11008},
};

}  // namespace

const Preset* find_preset(const std::string& name) {
  const auto* const found =
      std::find_if(kPresets.begin(), kPresets.end(),
                   [&name](const Preset& preset) { return preset.name == name; });
  return found == kPresets.end() ? nullptr : found;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  std::transform(kPresets.begin(), kPresets.end(), std::back_inserter(names),
                 [](const Preset& preset) { return std::string(preset.name); });
  return names;
}

namespace settings {

void apply_preset(const Preset& preset, Draft& draft) {
  ModelConfig& model = draft.config.model;
  model.preset = preset.name;
  model.vocab_size = preset.vocab_size;
  model.hidden = preset.hidden;
  model.layers = preset.layers;
  model.heads = preset.heads;
  model.kv_heads = preset.kv_heads;
  draft.head_dim = preset.head_dim;
  model.ffn = preset.ffn;
}

}  // namespace settings
}  // namespace nsa
