#pragma once

// The kernels that make dk and dv of selected attention from the lists of the blocks.

#include <cuda_runtime_api.h>

#include "kernels/nsa/selected_index.h"
#include "kernels/nsa/selected_problem.h"

namespace nsa::cuda {

// Parts of lists that have a slot leave their sums there: `partials` [lists.most_slots, key tiles,
// kTileKeys, head_dim + v_dim], dk first. At least one token.

/// mma.sync. Head dims as fits_tensor_cores() says.
void selected_dkdv_tensor(const SelectedProblem<bf16>& problem, const BlockLists& lists,
                          float* partials, cudaStream_t stream);

/// Warpgroups, where the running GPU has them and the problem fits_dkdv_group().
void selected_dkdv_group(const SelectedProblem<bf16>& problem, const BlockLists& lists,
                         float* partials, int multiprocessors, Scratch::Frame& frame,
                         cudaStream_t stream);
bool fits_dkdv_group(const SelectedProblem<bf16>& problem);

/// Keys of a block are worked on in so many tiles.
inline std::int32_t key_tiles_of(const SelectedProblem<bf16>& problem) {
  constexpr std::int32_t kKeys = 64;
  return (problem.select_block + kKeys - 1) / kKeys;
}

}  // namespace nsa::cuda
