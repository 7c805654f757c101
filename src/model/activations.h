#pragma once

// Activations: the tensors of one micro-step, in one arena, and which of them backward finds again.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "config/config.h"
#include "core/arena.h"
#include "model/weights.h"
#include "ops/gate.h"
#include "ops/split_rope.h"

namespace nsa {

/// How much each block keeps for backward, from least to most: forward alone, then the settings of
/// memory.recompute. What a block does not keep stands in memory that all blocks share.
enum class Keep : std::uint8_t {
  kNothing,    ///< forward alone; even then the selected blocks stay
  kInput,      ///< full: what enters the block
  kExpensive,  ///< selective: also what a matmul or an attention made
  kEverything  ///< none: also norms, products, compressed rows and the gated sum
};

Keep keep_of(Recompute recompute);

/// An NSA or a dense attention sublayer; a dense one has pair 0 and lse 0, without gates.
struct AttentionActivations {
  Tensor normed;                   ///< [rows, hidden]
  Tensor rstd;                     ///< [rows]
  Tensor projection;               ///< [rows, columns]; backward reads it for QK-norm only
  Tensor q;                        ///< [rows, heads, head_dim]
  std::array<KvPair, 3> pairs;     ///< by Branch
  Tensor gate_logits;              ///< [rows, heads, 3]
  KvPair compressed;               ///< [compressed_rows, kv_heads, ...]: phi of pair 0
  std::array<Tensor, 3> branches;  ///< [rows, heads, v_head_dim], by Branch
  std::array<Tensor, 3> lse;       ///< [rows, heads]
  Tensor gates;                    ///< [rows, heads, 3]
  Tensor combined;                 ///< [rows, heads, v_head_dim]: the output projection reads it
  Tensor blocks;                   ///< [rows, kv_heads, top_n], i32: kept whatever the policy
};

struct MlpActivations {
  Tensor normed;   ///< [rows, hidden]
  Tensor rstd;     ///< [rows]
  Tensor gate_up;  ///< [rows, 2 * ffn]
  Tensor product;  ///< [rows, ffn]: the down projection reads it
};

/// The residual stream has a buffer where it enters each sublayer: the norm that stands there adds
/// what the sublayer before made.
struct BlockActivations {
  Tensor residual_in;   ///< [rows, hidden], normalised for attention
  Tensor residual_mid;  ///< [rows, hidden], normalised for the MLP
  AttentionActivations attention;
  MlpActivations mlp;
};

/// Gradients inside an attention sublayer; the blocks of a kind take turns in the same memory.
struct AttentionScratch {
  Tensor dcombined;              ///< [rows, heads, v_head_dim]
  Tensor dgate_logits;           ///< [rows, heads, 3]
  Tensor deltas;                 ///< [rows, heads, 3]
  Tensor dq;                     ///< [rows, heads, head_dim]
  std::array<KvPair, 3> dpairs;  ///< by Branch; undefined where no gradient arrives
  KvPair dcompressed;            ///< [compressed_rows, kv_heads, ...]
  Tensor dprojection;            ///< [rows, columns]
};

/// The final norm and the loss.
struct HeadActivations {
  Tensor residual;  ///< [rows, hidden]
  Tensor rstd;      ///< [rows]
  Tensor normed;    ///< [rows, hidden]
  Tensor logits;    ///< [rows of a chunk, vocab_size]
};

/// What a plan depends on.
struct PlanShape {
  std::int64_t rows = 0;
  std::int64_t compressed_rows = 0;
  Keep keep = Keep::kEverything;
};

class Activations {
 public:
  /// Tensors of `dtype` for the layers whose weights are `layers`. No memory yet. The device must
  /// be chosen: logits are cut by it.
  Activations(const Config& config, const std::vector<BlockParameters>& layers, DType dtype);

  /// Bytes that a plan of this shape takes. Before allocate().
  std::int64_t measure(const PlanShape& shape);
  void allocate(Device& device, std::int64_t bytes);
  /// Lays out the tensors of one micro-step. Their contents are undefined, but the selected blocks
  /// stay where they are while `rows` is the same.
  void plan(const PlanShape& shape);
  std::int64_t capacity() const { return arena_.capacity(); }

  std::vector<BlockActivations> blocks;
  HeadActivations head;
  Tensor delta;      ///< [rows, hidden]: what a sublayer adds to the residual stream
  Tensor dresidual;  ///< [rows, hidden]: gradient of the residual stream
  Tensor dnormed;    ///< [rows, hidden]: gradient of a norm's output, in the memory of `delta`
  Tensor dproduct;   ///< [rows, ffn]
  AttentionScratch nsa_scratch;
  AttentionScratch dense_scratch;

 private:
  Tensor take(Keep from, Tensor& shared, DType dtype, std::initializer_list<std::int64_t> shape);
  void take_selected_blocks();
  void take_block(std::int64_t layer);
  void take_projection(AttentionActivations& a, std::int64_t columns);
  void take_pairs(AttentionActivations& a);
  void take_branches(AttentionActivations& a);
  void take_nsa_scratch();
  void take_dense_scratch();
  void take_dprojection(AttentionScratch& scratch, std::int64_t columns);
  void take_overlays();
  std::int64_t layers() const;
  bool is_dense(std::int64_t layer) const;
  std::int64_t columns_of(bool dense) const;
  std::int64_t chunk_rows() const;

  ModelConfig model_;
  AttentionConfig attention_;
  MemoryConfig memory_;
  bool on_gpu_;
  std::vector<std::int64_t> columns_;  ///< of each layer's projection
  DType dtype_;
  Arena arena_;
  PlanShape shape_;
  BlockActivations shared_;   ///< what blocks do not keep
  Tensor shared_projection_;  ///< flat, for the widest layer
};

}  // namespace nsa
