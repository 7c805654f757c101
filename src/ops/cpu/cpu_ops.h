#pragma once

// The CPU backend: newcomer's first run, oracle of the tests. Each apply() is defined in the file
// of its op. fp32 and fp64 through one template each.

#include <cstddef>
#include <deque>

#include "core/parallel.h"
#include "ops/cpu/scratch.h"
#include "ops/ops.h"

namespace nsa::cpu {

/// Results depend on shapes and values alone, never on the number of threads.
class CpuOps final : public Ops {
 public:
  /// `device` provides scratch memory and must outlive this.
  CpuOps(Device& device, int threads);

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

  Scratch& scratch(int worker) { return scratch_[static_cast<std::size_t>(worker)]; }

  void before_loop();
  void after_loop();  ///< evens out the workers' scratch memory

  WorkerPool pool_;
  std::deque<Scratch> scratch_;  ///< one per worker; worker 0's also serves the calling thread
};

}  // namespace nsa::cpu
