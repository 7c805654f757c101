#include "train/flops.h"

#include "params/layout.h"

namespace nsa {
namespace {

/// phi over one tensor of a layer: pooling, then the MLP.
double compressor_flops(const Config& config, const NsaGeometry& geometry, std::int64_t blocks,
                        std::int64_t width, std::int64_t mlp_width) {
  const auto dim = static_cast<double>(width);
  const auto hidden = static_cast<double>(mlp_width);
  const auto length = static_cast<double>(geometry.compress_block());
  const double pool = 2 * length * dim;
  const double mlp = 4 * dim * hidden;
  double each = 0;
  switch (config.attention.compress.phi) {
    case Phi::kMean:
      each = pool;
      break;
    case Phi::kMeanMlp:
    case Phi::kPoolMlp:
      each = pool + mlp;
      break;
    case Phi::kMlpFlat:
      each = 2 * hidden * (length + 1) * dim;
      break;
  }
  return each * static_cast<double>(blocks * config.model.kv_heads);
}

/// An NSA layer's compressors, over a document. Keys that only score blocks count nothing.
double layer_compressors(const Config& config, std::int64_t tokens, const NsaGeometry& geometry) {
  const CompressConfig& compress = config.attention.compress;
  const bool bypass = geometry.rate == 1 && compress.rate1_bypass;
  if (!config.attention.compressed || bypass || tokens < geometry.compress_block()) return 0;
  const std::int64_t blocks = (tokens - geometry.compress_block()) / geometry.compress_stride() + 1;
  return compressor_flops(config, geometry, blocks, config.model.head_dim, compress.hidden_key) +
         compressor_flops(config, geometry, blocks, config.model.v_head_dim, compress.hidden_value);
}

/// Pairs that an NSA layer attends to, over a document.
double layer_pairs(const AttentionConfig& attention, std::int64_t tokens,
                   const NsaGeometry& geometry) {
  std::int64_t pairs = 0;
  if (attention.compressed) pairs += pairs_compressed(tokens, geometry);
  if (attention.selected) pairs += pairs_selected(tokens, geometry);
  if (attention.window_branch) pairs += pairs_window(tokens, geometry);
  return static_cast<double>(pairs);
}

}  // namespace

ForwardFlops forward_flops(const Config& config, std::int64_t tokens, const NsaGeometry& geometry) {
  const ModelConfig& model = config.model;
  const Layout layout(config);
  const auto last_bucket = static_cast<std::int64_t>(layout.buckets().size()) - 1;
  ForwardFlops flops;
  for (const Parameter& parameter : layout.parameters()) {
    // A block's matrices, but for those of phi, multiply every token once.
    const bool in_block = parameter.bucket > 0 && parameter.bucket < last_bucket;
    if (!in_block || !parameter.decay || parameter.role == Role::kPhi) continue;
    const bool in_mlp = parameter.name.find(".mlp.") != std::string::npos;
    (in_mlp ? flops.mlp : flops.projections) += 2.0 * static_cast<double>(parameter.size());
  }
  const auto count = static_cast<double>(tokens);
  const double per_pair =
      2.0 * static_cast<double>(model.heads * (model.head_dim + model.v_head_dim));
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    if (is_dense_layer(config.attention, layer)) {
      flops.attention += per_pair * static_cast<double>(pairs_full(tokens)) / count;
    } else {
      flops.attention += per_pair * layer_pairs(config.attention, tokens, geometry) / count;
      flops.compressor += layer_compressors(config, tokens, geometry) / count;
    }
  }
  flops.head = 2.0 * static_cast<double>(model.vocab_size * model.hidden);
  return flops;
}

}  // namespace nsa
