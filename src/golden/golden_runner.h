#pragma once

// Golden files through the real ops: forward and every gradient.

#include <string>
#include <vector>

#include "golden/golden_compare.h"
#include "ops/backend.h"

namespace nsa {

/// Runs a file in fp32, fp64 (cpu) or bf16 (cuda). Skipped: documents of differing compression
/// rates, which no stage of a run has.
GoldenResult run_golden(Backend& backend, const GoldenCase& golden, DType dtype);

/// The files that `paths` name: a file stands for itself, a folder for its *.safetensors in order
/// of their names. Throws Error of exit code 3 for a path that is not there.
std::vector<std::string> golden_files(const std::vector<std::string>& paths);

}  // namespace nsa
