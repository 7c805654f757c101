#include "train/gpu_memory.h"

#include <algorithm>

#include "ops/nsa_geometry.h"
#include "train/workshop.h"

namespace nsa {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
/// A context with the code of all kernels that a step runs: measured on an H200, driver 580.
constexpr std::int64_t kContext = 620 * kMiB;
/// Multiprocessors of the GPUs that this is made for; how work is cut depends on them.
constexpr std::int64_t kMultiprocessors = 132;
/// What kernels/matmul.cpp lends the matmul library.
constexpr std::int64_t kWorkspace = 32 * kMiB;

std::int64_t ceil_div(std::int64_t count, std::int64_t unit) {
  return (count + unit - 1) / unit;
}

/// One micro-batch of one stage in one NSA or dense layer.
struct Shape {
  std::int64_t tokens = 0, documents = 0, longest = 0;
  std::int64_t kv_heads = 0, group = 0, head_dim = 0, v_dim = 0;
  NsaGeometry geometry;
  std::int64_t heads() const { return kv_heads * group; }
  std::int64_t width() const { return head_dim + v_dim; }
};

/// Scores of a chunk of queries (kernels/nsa/compressed_select.cu).
std::int64_t score_bytes(const Shape& s) {
  constexpr std::int64_t kChunkBytes = 64 * kMiB;
  const std::int64_t blocks = ceil_div(s.longest, s.geometry.select_block);
  const std::int64_t row = std::max<std::int64_t>(blocks, 1) * s.kv_heads * 4;
  const std::int64_t fit = std::max<std::int64_t>(kChunkBytes / row / 256, 1) * 256;
  return std::min(s.tokens, fit) * row;
}

/// Lists of the queries of each block, and sums of their parts (kernels/nsa/selected_index.cu,
/// selected_dkdv.cu).
std::int64_t selected_backward_bytes(const Shape& s) {
  const std::int64_t entries = s.tokens * s.kv_heads * s.geometry.top_n;
  const std::int64_t part = std::clamp<std::int64_t>(entries / (8 * kMultiprocessors), 64, 1024);
  const std::int64_t chunk = std::max<std::int64_t>(64, ceil_div(s.tokens, 512));
  const std::int64_t chunks = ceil_div(s.tokens, chunk);
  const std::int64_t wanted_span =
      std::max(64 * kMiB / (s.group * s.width() * 2), ceil_div(s.tokens, 16));
  const std::int64_t span = ceil_div(wanted_span, chunk) * chunk;
  const std::int64_t ids = s.tokens / s.geometry.select_block + s.documents + 1;
  std::int64_t slots = 2 * (entries / part);
  for (std::int64_t end = span; s.tokens > span && end < s.tokens + span; end += span) {
    slots += std::min(end / s.geometry.select_block + 3, ids) * s.kv_heads;
  }
  const std::int64_t spans = ceil_div(chunks, ceil_div(span, chunk));
  const std::int64_t lists = ids * s.kv_heads;
  const std::int64_t keys = ceil_div(s.geometry.select_block, 64) * 64;
  return slots * keys * s.width() * 4 +                 // sums of parts
         entries * 4 + s.kv_heads * chunks * ids * 4 +  // queries, counts
         lists * (spans + 5) * 4 +                      // where lists begin
         (entries / part + lists * spans) * 16 +        // parts
         (s.tokens + 1) * s.heads() * 16;               // statistics of rows
}

/// Sums over segments of rows, where key tiles are few (kernels/attention/range_segments.cuh).
std::int64_t segment_bytes(const Shape& s, std::int64_t keys) {
  constexpr std::int64_t kTileKeys = 128;
  const std::int64_t tiles = ceil_div(keys, kTileKeys) * s.kv_heads;
  const std::int64_t parts = 10 * kMultiprocessors / std::max<std::int64_t>(tiles, 1) - 1;
  const std::int64_t rows = s.longest * s.group;
  if (parts < 2 || rows <= 1024) return 0;
  const std::int64_t segments = std::min(parts, ceil_div(rows, 1024)) + 1;
  const auto padded = [](std::int64_t dim) { return ceil_div(dim, 64) * 64; };
  return tiles * segments * kTileKeys * (padded(s.head_dim) + padded(s.v_dim)) * 4;
}

/// Rows of phi on their way, the wider of keys and values (kernels/nsa/compress.cu).
std::int64_t compress_bytes(const Shape& s, const CompressConfig& compress) {
  const std::int64_t rows =
      ceil_div(s.tokens * s.kv_heads / s.geometry.compress_stride(), 512) * 512;
  const std::int64_t dim = std::max(s.head_dim, s.v_dim);
  const std::int64_t hidden =
      compress.phi == Phi::kMean ? 0 : std::max(compress.hidden_key, compress.hidden_value);
  const bool flat = compress.phi == Phi::kMlpFlat;
  const std::int64_t input = flat ? s.geometry.compress_block() * dim : dim;
  return rows * (6 * dim + (flat ? 4 : 6) * input + 12 * hidden);
}

std::int64_t nsa_scratch(const Shape& s, const AttentionConfig& attention) {
  std::int64_t most = 0;
  if (reads_compressed_keys(attention)) {
    most = std::max(most, compress_bytes(s, attention.compress));
    most = std::max(most, segment_bytes(s, s.tokens / s.geometry.compress_stride()));
  }
  if (attention.selected) {
    most = std::max({most, score_bytes(s), selected_backward_bytes(s)});
  }
  return most;
}

std::int64_t dense_scratch(const Shape& s) {
  return s.tokens * s.heads() * 4 + segment_bytes(s, s.tokens);
}

/// Ops outside attention: the embedding's backward sorts its tokens and sums long runs from parts.
std::int64_t other_scratch(const Config& config, std::int64_t tokens) {
  return tokens * 28 + ceil_div(tokens, 64) * 2 * config.model.hidden * 4 + kMiB;
}

std::int64_t scratch_of(const Config& config, const Shape& shape) {
  std::int64_t most = other_scratch(config, shape.tokens);
  for (std::int64_t layer = 0; layer < config.model.layers; ++layer) {
    most = std::max(most, is_dense_layer(config.attention, layer)
                              ? dense_scratch(shape)
                              : nsa_scratch(shape, config.attention));
  }
  return most;
}

/// While the algorithm of a product is chosen, a copy of what it adds to is kept: the gradient of
/// the largest matrix. Scratch has not grown beyond that of forward then.
std::int64_t tuning_bytes(const Layout& layout) {
  std::int64_t most = 0;
  for (const Parameter& parameter : layout.parameters()) most = std::max(most, parameter.size());
  return most * 4;
}

}  // namespace

GpuMemory plan_gpu_memory(const Config& config, const Layout& layout, const Schedule& schedule) {
  GpuMemory memory{.workspace = kWorkspace, .context = kContext};
  const ModelConfig& model = config.model;
  std::int64_t rows = 0;
  std::int64_t longest = 0;
  for (const MicroShape& stage : shapes_of(schedule)) {
    Shape shape{.tokens = stage.rows,
                .documents = ceil_div(stage.rows, stage.longest),
                .longest = stage.longest,
                .kv_heads = model.kv_heads,
                .group = model.heads / model.kv_heads,
                .head_dim = model.head_dim,
                .v_dim = model.v_head_dim,
                .geometry = stage.geometry};
    memory.scratch = std::max(
        {memory.scratch, scratch_of(config, shape), score_bytes(shape) + tuning_bytes(layout)});
    if (config.data.doc_mask) {
      shape.documents = stage.rows;
      memory.scratch = std::max(memory.scratch, scratch_of(config, shape));
    }
    rows = std::max(rows, stage.rows);
    longest = std::max(longest, stage.longest);
  }
  // Tokens, targets and bounds of the loader, the rehearsal and the evaluation, which also has
  // losses; the documents of tokens, compressed rows and their beginnings.
  const std::int64_t batches = 2 + (config.data.val.empty() ? 0 : 1);
  memory.tables = rows * (12 * batches + (config.data.val.empty() ? 0 : 4) + 16) +
                  longest * model.rope_dim / 2 * 8;
  return memory;
}

}  // namespace nsa
