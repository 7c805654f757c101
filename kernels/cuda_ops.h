#pragma once

// The CUDA backend: all ops on one GPU. Each apply() is defined in the file of its op. fp32 and
// bf16 storage through one template each, fp32 arithmetic.

#include <cuda_runtime_api.h>

#include "core/kernel_choice.h"
#include "kernels/common/documents.h"
#include "kernels/common/scratch.h"
#include "kernels/common/staging.h"
#include "kernels/cuda_device.h"
#include "kernels/matmul.h"
#include "kernels/rope_table.h"
#include "ops/ops.h"

namespace nsa::cuda {

/// Results depend on shapes and values alone: two runs give the same bits. Everything is queued on
/// the device's stream; no op waits for the GPU.
class CudaOps final : public Ops {
 public:
  /// `device` must outlive this.
  CudaOps(CudaDevice& device, KernelChoice kernels);

 private:
  void apply(const MatmulForward& op) override;
  void apply(const MatmulBackwardInput& op) override;
  void apply(const MatmulBackwardWeight& op) override;
  void apply(const ResidualNormForward& op) override;
  void apply(const ResidualNormBackward& op) override;
  void apply(const SplitRopeForward& op) override;
  void apply(const SplitRopeBackward& op) override;
  void apply(const SwiGluForward& op) override;
  void apply(const SwiGluBackward& op) override;
  void apply(const EmbeddingForward& op) override;
  void apply(const EmbeddingBackward& op) override;
  void apply(const LinearCrossEntropy& op) override;
  void apply(const CompressForward& op) override;
  void apply(const CompressBackward& op) override;
  void apply(const CompressedSelectForward& op) override;
  void apply(const CompressedAttentionBackward& op) override;
  void apply(const SelectBlocks& op) override;
  void apply(const SelectedAttentionForward& op) override;
  void apply(const SelectedAttentionBackward& op) override;
  void apply(const WindowAttentionForward& op) override;
  void apply(const WindowAttentionBackward& op) override;
  void apply(const GateCombineForward& op) override;
  void apply(const GateBackward& op) override;
  void apply(const DenseAttentionForward& op) override;
  void apply(const DenseAttentionBackward& op) override;
  void apply(const Cast& op) override;
  void apply(const SumSquares& op) override;
  void apply(const AdamW& op) override;

  cudaStream_t stream_;
  bool general_;         ///< whether fast paths are left out, by choice
  int multiprocessors_;  ///< of the GPU: how many blocks run side by side
  MatmulEngine matmul_;
  Scratch scratch_;
  Staging& staging_;  ///< the device's
  DocumentTable documents_;
  RopeTable rope_table_;
};

}  // namespace nsa::cuda
