#pragma once

// A small parameter store with recognisable contents, to write and read as checkpoints.

#include <cstdint>
#include <vector>

#include "ops/backend.h"
#include "params/store.h"
#include "support/model_config.h"
#include "train/run_state.h"

namespace nsa::test {

struct StoredModel {
  explicit StoredModel(const Config& config = small_config(), DType dtype = DType::kF32)
      : backend(make_backend("cpu", 1)), store(Layout(config), backend, dtype) {
    store.initialize(7);
  }

  /// Every element of the parameters' master, m and v, and every update count, differs with `seed`.
  void scramble(float seed) {
    for (const Parameter& parameter : store.layout().parameters()) {
      const std::int64_t begin = store.layout().begin(parameter);
      for (std::int64_t i = begin; i < begin + parameter.size(); ++i) {
        store.master().as<float>()[i] = seed + static_cast<float>(i);
        store.m().as<float>()[i] = seed - static_cast<float>(i);
        store.v().as<float>()[i] = seed * static_cast<float>(i + 1);
      }
    }
    for (std::size_t i = 0; i < store.updates().size(); ++i) {
      store.updates()[i] = static_cast<std::int64_t>(seed) + static_cast<std::int64_t>(i);
    }
    store.publish();
  }

  static std::vector<float> copy(const Tensor& flat) {
    const float* data = flat.as<float>();
    return {data, data + flat.size()};
  }

  Backend backend;
  ParameterStore store;
};

/// A state with no field at its initial value.
inline RunState some_state(std::int64_t step) {
  return {.step = step,
          .loader = {.epoch = 2, .cursor = 4096, .dropped = 64},
          .page = 128,
          .seed = 0xFFFFFFFFFFFFFFF1ULL,
          .train_data = 0xDEADBEEF,
          .val_data = 17,
          .rate = 4,
          .skipped = 3,
          .wall_seconds = 0.1 + 12,
          .evaluation_pending = true,
          .last_validation = Validation{.step = step - 1, .loss = 0.1 + 0.2, .tokens = 999},
          .config_yaml = "run: {name: \"a\\nb\"}\n",
          .config_fingerprint = 0xFFFFFFFF};
}

}  // namespace nsa::test
