#pragma once

// The parts of selected attention: which kernels do what.

#include <cuda_runtime_api.h>

#include "kernels/nsa/selected_index.h"
#include "kernels/nsa/selected_problem.h"

namespace nsa::cuda {

template <class T>
Selection selection_of(const SelectedProblem<T>& problem) {
  return {.blocks = problem.blocks,
          .kv_heads = problem.kv_heads,
          .top_n = problem.top_n,
          .select_block = problem.select_block,
          .documents = problem.documents};
}

// Tensor cores, bf16. Head dims as fits_tensor_cores() says.

/// out and lse.
void selected_forward_tensor(const SelectedProblem<bf16>& problem, cudaStream_t stream);
/// dq, query by query: probabilities are computed again.
void selected_dq_tensor(const SelectedProblem<bf16>& problem, cudaStream_t stream);
/// dk and dv, block by block, over the queries that selected the block in ascending order. Makes
/// the lists of the queries and chooses the kernel by shape and GPU.
void selected_dkdv(const SelectedProblem<bf16>& problem, int multiprocessors, Scratch::Frame& frame,
                   cudaStream_t stream);

// One lane a key, fp32 arithmetic: fp32 storage, and bf16 where the others do not fit.

template <class T>
void selected_forward_plain(const SelectedProblem<T>& problem, cudaStream_t stream);
template <class T>
void selected_dq_plain(const SelectedProblem<T>& problem, cudaStream_t stream);
template <class T>
void selected_dkdv_plain(const SelectedProblem<T>& problem, const BlockLists& lists,
                         cudaStream_t stream);

}  // namespace nsa::cuda
