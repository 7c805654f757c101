#pragma once

// The kernels that walk selected blocks query by query by warps with separate tasks (sm_90a).

#include <cuda_runtime_api.h>

#include "kernels/nsa/selected_problem.h"

namespace nsa::cuda {

/// Whether the running GPU has them and the problem is one of theirs: blocks of 64 keys, equal head
/// dims of 64 or 128, groups of 2^n heads up to 64.
bool fits_selected_group(const SelectedProblem<bf16>& problem);

/// out and lse.
void selected_forward_group(const SelectedProblem<bf16>& problem, cudaStream_t stream);
/// dq: probabilities are computed again.
void selected_dq_group(const SelectedProblem<bf16>& problem, cudaStream_t stream);

}  // namespace nsa::cuda
