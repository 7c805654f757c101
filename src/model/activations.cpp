#include "model/activations.h"

#include <algorithm>

#include "config/device.h"
#include "core/error.h"
#include "params/layout.h"

namespace nsa {
namespace {

// Logits stay in the cache hierarchy of a CPU and leave the matmul large enough to be efficient.
constexpr std::int64_t kLogitsBytes = std::int64_t{8} << 20;
// A GPU's matmul wants some thousand rows, and each chunk reads and writes the gradient of the head
// once more.
constexpr std::int64_t kGpuLogitsBytes = std::int64_t{1} << 30;
// Matmul libraries work in tiles of rows: whole ones, so that a row's logits do not depend on where
// a chunk begins.
constexpr std::int64_t kLogitsRows = 64;

}  // namespace

Keep keep_of(Recompute recompute) {
  switch (recompute) {
    case Recompute::kNone:
      return Keep::kEverything;
    case Recompute::kSelective:
      return Keep::kExpensive;
    case Recompute::kFull:
      return Keep::kInput;
  }
  fail("keep_of: unknown setting");
}

Activations::Activations(const Config& config, const std::vector<BlockParameters>& layers,
                         DType dtype)
    : blocks(layers.size()),
      model_(config.model),
      attention_(config.attention),
      memory_(config.memory),
      on_gpu_(runs_on_gpu(config)),
      dtype_(dtype),
      arena_(Arena::measuring()) {
  for (const BlockParameters& layer : layers) {
    columns_.push_back(layer.weights.attention.projection.dim(0));
  }
}

std::int64_t Activations::measure(const PlanShape& shape) {
  arena_ = Arena::measuring();
  plan(shape);
  return arena_.high_water();
}

void Activations::allocate(Device& device, std::int64_t bytes) {
  arena_ = Arena(device, bytes);
}

void Activations::plan(const PlanShape& shape) {
  shape_ = shape;
  shared_ = {};
  shared_projection_ = {};
  arena_.rewind(0);
  take_selected_blocks();

  const std::int64_t rows = shape_.rows;
  const std::int64_t hidden = model_.hidden;
  delta = arena_.take(dtype_, {rows, hidden});
  dnormed = delta;  // backward begins when nothing is left to add
  head.residual = arena_.take(dtype_, {rows, hidden});
  head.rstd = arena_.take(stat_dtype(dtype_), {rows});
  if (shape_.keep != Keep::kNothing) dresidual = arena_.take(dtype_, {rows, hidden});
  for (std::int64_t layer = 0; layer < layers(); ++layer) take_block(layer);
  take_overlays();
}

/// A tensor of the block's own where the plan keeps `from` and above, else the shared one.
Tensor Activations::take(Keep from, Tensor& shared, DType dtype,
                         std::initializer_list<std::int64_t> shape) {
  if (shape_.keep >= from) return arena_.take(dtype, shape);
  if (!shared.defined()) shared = arena_.take(dtype, shape);
  return shared;
}

/// First in the arena: their place depends on `rows` alone, so that another forward of as many rows
/// finds them.
void Activations::take_selected_blocks() {
  for (std::int64_t layer = 0; layer < layers(); ++layer) {
    if (is_dense(layer) || !attention_.selected) continue;
    blocks[static_cast<std::size_t>(layer)].attention.blocks =
        arena_.take(DType::kI32, {shape_.rows, model_.kv_heads, attention_.select.top_n});
  }
}

void Activations::take_block(std::int64_t layer) {
  BlockActivations& block = blocks[static_cast<std::size_t>(layer)];
  const std::int64_t rows = shape_.rows;
  const std::int64_t hidden = model_.hidden;
  const bool dense = is_dense(layer);
  block.residual_in = take(Keep::kInput, shared_.residual_in, dtype_, {rows, hidden});
  block.residual_mid = take(Keep::kExpensive, shared_.residual_mid, dtype_, {rows, hidden});

  AttentionActivations& a = block.attention;
  AttentionActivations& s = shared_.attention;
  a.normed = take(Keep::kEverything, s.normed, dtype_, {rows, hidden});
  a.rstd = take(Keep::kEverything, s.rstd, stat_dtype(dtype_), {rows});
  take_projection(a, columns_[static_cast<std::size_t>(layer)]);
  a.q = take(Keep::kExpensive, s.q, dtype_, {rows, model_.heads, model_.head_dim});
  // In a dense layer `combined` comes straight out of the attention.
  a.combined = take(dense ? Keep::kExpensive : Keep::kEverything, s.combined, dtype_,
                    {rows, model_.heads, model_.v_head_dim});
  if (dense) {
    a.pairs[0].k =
        take(Keep::kExpensive, s.pairs[0].k, dtype_, {rows, model_.kv_heads, model_.head_dim});
    a.pairs[0].v =
        take(Keep::kExpensive, s.pairs[0].v, dtype_, {rows, model_.kv_heads, model_.v_head_dim});
    a.lse[0] = take(Keep::kExpensive, s.lse[0], stat_dtype(dtype_), {rows, model_.heads});
  } else {
    take_pairs(a);
    take_branches(a);
  }

  MlpActivations& mlp = block.mlp;
  mlp.normed = take(Keep::kEverything, shared_.mlp.normed, dtype_, {rows, hidden});
  mlp.rstd = take(Keep::kEverything, shared_.mlp.rstd, stat_dtype(dtype_), {rows});
  mlp.gate_up = take(Keep::kExpensive, shared_.mlp.gate_up, dtype_, {rows, 2 * model_.ffn});
  mlp.product = take(Keep::kEverything, shared_.mlp.product, dtype_, {rows, model_.ffn});
}

void Activations::take_projection(AttentionActivations& a, std::int64_t columns) {
  const std::int64_t rows = shape_.rows;
  if (model_.qk_norm && shape_.keep >= Keep::kExpensive) {
    a.projection = arena_.take(dtype_, {rows, columns});
    return;
  }
  if (!shared_projection_.defined()) {
    const std::int64_t widest = *std::max_element(columns_.begin(), columns_.end());
    shared_projection_ = arena_.take(dtype_, {rows * widest});
  }
  a.projection = shared_projection_.slice(0, rows * columns).reshape({rows, columns});
}

/// The K/V pairs that some branch reads. With share_kv those that hold the same numbers share
/// memory: all values, and the keys that are rotated alike.
void Activations::take_pairs(AttentionActivations& a) {
  const std::array<bool, 3> wanted = {reads_compressed_keys(attention_), attention_.selected,
                                      attention_.window_branch};
  const bool rotates_first =
      attention_.compress.rope == CompressRope::kBefore || model_.rope_dim == 0;
  Tensor v;
  std::array<Tensor, 2> k;  // not rotated, rotated
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (!wanted[i]) continue;
    KvPair& shared = shared_.attention.pairs[i];
    Tensor& key = k[i > 0 || rotates_first ? 1 : 0];
    if (!attention_.share_kv || !key.defined()) {
      key =
          take(Keep::kExpensive, shared.k, dtype_, {shape_.rows, model_.kv_heads, model_.head_dim});
    }
    a.pairs[i].k = key;
    if (i == kCompressed && !attention_.compressed) continue;
    if (!attention_.share_kv || !v.defined()) {
      v = take(Keep::kExpensive, shared.v, dtype_,
               {shape_.rows, model_.kv_heads, model_.v_head_dim});
    }
    a.pairs[i].v = v;
  }
}

void Activations::take_branches(AttentionActivations& a) {
  AttentionActivations& s = shared_.attention;
  const std::int64_t rows = shape_.rows;
  const DType stat = stat_dtype(dtype_);
  const std::array<bool, 3> on = {attention_.compressed, attention_.selected,
                                  attention_.window_branch};
  if (reads_compressed_keys(attention_)) {
    a.compressed.k = take(Keep::kEverything, s.compressed.k, dtype_,
                          {shape_.compressed_rows, model_.kv_heads, model_.head_dim});
    a.lse[kCompressed] = take(Keep::kExpensive, s.lse[kCompressed], stat, {rows, model_.heads});
  }
  if (attention_.compressed) {
    a.compressed.v = take(Keep::kEverything, s.compressed.v, dtype_,
                          {shape_.compressed_rows, model_.kv_heads, model_.v_head_dim});
  }
  for (std::size_t i = 0; i < on.size(); ++i) {
    if (!on[i]) continue;
    a.branches[i] =
        take(Keep::kExpensive, s.branches[i], dtype_, {rows, model_.heads, model_.v_head_dim});
    if (i != kCompressed) a.lse[i] = take(Keep::kExpensive, s.lse[i], stat, {rows, model_.heads});
  }
  a.gate_logits = take(Keep::kExpensive, s.gate_logits, dtype_, {rows, model_.heads, 3});
  a.gates = take(Keep::kEverything, s.gates, stat, {rows, model_.heads, 3});
}

void Activations::take_nsa_scratch() {
  const std::int64_t rows = shape_.rows;
  const std::int64_t kv_heads = model_.kv_heads;
  const std::array<bool, 3> on = {attention_.compressed, attention_.selected,
                                  attention_.window_branch};
  AttentionScratch& s = nsa_scratch;
  s.dcombined = arena_.take(dtype_, {rows, model_.heads, model_.v_head_dim});
  s.dgate_logits = arena_.take(dtype_, {rows, model_.heads, 3});
  s.deltas = arena_.take(stat_dtype(dtype_), {rows, model_.heads, 3});
  s.dq = arena_.take(dtype_, {rows, model_.heads, model_.head_dim});
  for (std::size_t i = 0; i < on.size(); ++i) {
    if (!on[i]) continue;
    s.dpairs[i].k = arena_.take(dtype_, {rows, kv_heads, model_.head_dim});
    s.dpairs[i].v = arena_.take(dtype_, {rows, kv_heads, model_.v_head_dim});
  }
  if (attention_.compressed) {
    const std::int64_t compressed_rows = shape_.compressed_rows;
    s.dcompressed.k = arena_.take(dtype_, {compressed_rows, kv_heads, model_.head_dim});
    s.dcompressed.v = arena_.take(dtype_, {compressed_rows, kv_heads, model_.v_head_dim});
  }
  take_dprojection(s, columns_of(false));
}

void Activations::take_dense_scratch() {
  const std::int64_t rows = shape_.rows;
  AttentionScratch& s = dense_scratch;
  s.dcombined = arena_.take(dtype_, {rows, model_.heads, model_.v_head_dim});
  s.dq = arena_.take(dtype_, {rows, model_.heads, model_.head_dim});
  s.dpairs[0].k = arena_.take(dtype_, {rows, model_.kv_heads, model_.head_dim});
  s.dpairs[0].v = arena_.take(dtype_, {rows, model_.kv_heads, model_.v_head_dim});
  take_dprojection(s, columns_of(true));
}

/// Without QK-norm nobody reads a projection after it was split: its gradient takes its place.
void Activations::take_dprojection(AttentionScratch& scratch, std::int64_t columns) {
  const std::int64_t rows = shape_.rows;
  scratch.dprojection = model_.qk_norm
                            ? arena_.take(dtype_, {rows, columns})
                            : shared_projection_.slice(0, rows * columns).reshape({rows, columns});
}

/// Tensors that are never alive together, one on top of the other: the head's, the MLP's and those
/// of each kind of attention.
void Activations::take_overlays() {
  const std::int64_t mark = arena_.mark();
  head.normed = arena_.take(dtype_, {shape_.rows, model_.hidden});
  head.logits = arena_.take(dtype_, {chunk_rows(), model_.vocab_size});
  arena_.rewind(mark);
  if (shape_.keep == Keep::kNothing) return;
  dproduct = arena_.take(dtype_, {shape_.rows, model_.ffn});
  arena_.rewind(mark);
  if (columns_of(false) > 0) take_nsa_scratch();
  arena_.rewind(mark);
  if (columns_of(true) > 0) take_dense_scratch();
  arena_.rewind(mark);
}

std::int64_t Activations::layers() const {
  return static_cast<std::int64_t>(blocks.size());
}

bool Activations::is_dense(std::int64_t layer) const {
  return is_dense_layer(attention_, layer);
}

/// Columns of the projection of a kind of layers; 0 where there are none.
std::int64_t Activations::columns_of(bool dense) const {
  for (std::int64_t layer = 0; layer < layers(); ++layer) {
    if (is_dense(layer) == dense) return columns_[static_cast<std::size_t>(layer)];
  }
  return 0;
}

std::int64_t Activations::chunk_rows() const {
  const std::int64_t rows = std::max<std::int64_t>(shape_.rows, 1);
  if (memory_.logits_chunks) {
    const std::int64_t chunks = std::clamp<std::int64_t>(*memory_.logits_chunks, 1, rows);
    return (rows + chunks - 1) / chunks;
  }
  const std::int64_t bytes = on_gpu_ ? kGpuLogitsBytes : kLogitsBytes;
  const std::int64_t fitting = bytes / (model_.vocab_size * size_of(dtype_));
  return std::min(rows, std::max(fitting / kLogitsRows, std::int64_t{1}) * kLogitsRows);
}

}  // namespace nsa
