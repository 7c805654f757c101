#pragma once

// One attention layer between q, k, v, gate logits and the output, with everything that its ops
// read and write: as model/ runs it, without projections and RoPE.

#include "bench/bench_data.h"
#include "bench/bench_shape.h"
#include "ops/ops.h"

namespace nsa::bench {

/// Native sparse attention. The ops stand in the order of forward() and backward().
struct NsaCase {
  NsaCase(const BenchShape& shape, BenchData& data);

  void forward(Ops& ops) const;
  /// After forward().
  void backward(Ops& ops) const;

  /// FLOPs that are executed: the pass that scores blocks and the scores and compressed rows that
  /// backward makes again included.
  static double executed_forward_flops(const BenchShape& shape);
  static double executed_backward_flops(const BenchShape& shape);

  CompressForward compress_k, compress_v;
  CompressedSelectForward compressed;
  SelectedAttentionForward selected;
  WindowAttentionForward window;
  GateCombineForward combine;

  GateBackward gate_backward;
  WindowAttentionBackward window_backward;
  SelectedAttentionBackward selected_backward;
  CompressedAttentionBackward compressed_backward;
  CompressBackward compress_v_backward, compress_k_backward;

 private:
  void make_forward(const BenchShape& shape, BenchData& data);
  void make_backward(const BenchShape& shape, BenchData& data);
};

/// Full causal attention of the same heads.
struct DenseCase {
  DenseCase(const BenchShape& shape, BenchData& data);

  void forward(Ops& ops) const { ops.run(attend); }
  void backward(Ops& ops) const { ops.run(attend_backward); }

  static double executed_forward_flops(const BenchShape& shape);
  static double executed_backward_flops(const BenchShape& shape);

  DenseAttentionForward attend;
  DenseAttentionBackward attend_backward;
};

/// Of `pairs` (query, key) pairs per head: two products forward, five backward (the scores again).
double attention_forward_flops(const BenchShape& shape, std::int64_t pairs);
double attention_backward_flops(const BenchShape& shape, std::int64_t pairs);
/// phi over keys or values.
double compress_forward_flops(const BenchShape& shape);

}  // namespace nsa::bench
