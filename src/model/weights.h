#pragma once

// Views of the parameters that one block reads, made once: a step looks nothing up by name.

#include <cstdint>

#include "params/store.h"

namespace nsa {

struct AttentionWeights {
  Tensor norm;        ///< [hidden]
  Tensor projection;  ///< [columns, hidden]: q, the K/V pairs and the gate, adjacent
  Tensor gate_bias;   ///< [3 * heads]; undefined in dense layers
  Tensor out;         ///< [hidden, heads * v_head_dim]
  Tensor q_norm;      ///< [head_dim]; undefined without QK-norm
  Tensor k_norm;      ///< [3 or 1, head_dim]
  PhiWeights phi_k;   ///< undefined where the layer has none
  PhiWeights phi_v;
};

struct MlpWeights {
  Tensor norm;     ///< [hidden]
  Tensor gate_up;  ///< [2 * ffn, hidden], adjacent
  Tensor down;     ///< [hidden, ffn]
};

struct BlockWeights {
  AttentionWeights attention;
  MlpWeights mlp;
};

/// The weights of a block and, in the same shapes, their gradients.
struct BlockParameters {
  BlockWeights weights;
  BlockWeights gradients;
};

BlockParameters block_parameters(const ParameterStore& store, std::int64_t layer);

/// Embedding, final norm and LM head (the embedding itself where tied).
struct HeadWeights {
  Tensor embedding;  ///< [vocab_size, hidden]
  Tensor norm;       ///< [hidden]
  Tensor head;       ///< [vocab_size, hidden]
};

struct HeadParameters {
  HeadWeights weights;
  HeadWeights gradients;
};

HeadParameters head_parameters(const ParameterStore& store);

}  // namespace nsa
