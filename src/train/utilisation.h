#pragma once

// Model FLOPs utilisation: what a run's products need, over what the device could multiply.

#include <cstdint>
#include <optional>
#include <string>

#include "config/config.h"
#include "core/dtype.h"
#include "ops/nsa_geometry.h"

namespace nsa {

/// FLOP/s against which a run is measured: log.peak_tflops, else the dense tensor-core rate in its
/// maker's data sheet of a device of this name in bf16; nothing where neither tells (other types of
/// numbers, a CPU).
std::optional<double> peak_flops(const Config& config, const std::string& device, DType dtype);

/// FLOPs that training a token needs, in documents as long as the context: three forward passes'
/// worth, exact causal pairs, no recomputation (train/flops.h).
double training_flops(const Config& config, std::int64_t seq_len, const NsaGeometry& geometry);

}  // namespace nsa
