#pragma once

#include "config/config.h"

namespace nsa {

/// Whether a configuration whose device is chosen (not "auto") runs on a GPU.
inline bool runs_on_gpu(const Config& config) {
  return config.run.device.rfind("cuda", 0) == 0;
}

}  // namespace nsa
