#include "params/layout.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/checksum.h"
#include "core/error.h"

namespace nsa {
namespace {

// Elements. Keeps every matrix and bucket at an address that vector loads and matmul libraries
// like, in every element type.
constexpr std::int64_t kAlignment = 64;

std::int64_t align(std::int64_t elements) {
  return (elements + kAlignment - 1) / kAlignment * kAlignment;
}

/// Lists parameters and buckets in order.
class Builder {
 public:
  /// `init_std`: of matrices that are not told another.
  explicit Builder(double init_std) : init_std_(init_std) {}

  void open_bucket(std::string name) {
    close_bucket();
    buckets_.push_back({.name = std::move(name), .begin = size_, .size = 0});
    used_ = 0;
  }
  void close_bucket() {
    if (buckets_.empty()) return;
    buckets_.back().size = align(used_);
    size_ = buckets_.back().begin + buckets_.back().size;
  }

  /// N(0, std^2), with weight decay; std 0: zeros.
  Parameter& matrix(std::string name, std::int64_t rows, std::int64_t columns, double std) {
    return set_matrix(add(std::move(name), {rows, columns}, false), std);
  }
  Parameter& matrix(std::string name, std::int64_t rows, std::int64_t columns) {
    return matrix(std::move(name), rows, columns, init_std_);
  }
  /// Directly behind its predecessor, because one product reads both.
  Parameter& adjacent_matrix(std::string name, std::int64_t rows, std::int64_t columns) {
    return set_matrix(add(std::move(name), {rows, columns}, true), init_std_);
  }
  /// A constant start and no weight decay.
  Parameter& constant(std::string name, std::vector<std::int64_t> shape, Init init) {
    Parameter& added = add(std::move(name), std::move(shape), false);
    added.init = init;
    return added;
  }

  std::vector<Parameter> take_parameters() { return std::move(parameters_); }
  std::vector<Bucket> take_buckets() { return std::move(buckets_); }
  std::int64_t size() const { return size_; }

 private:
  static Parameter& set_matrix(Parameter& added, double std) {
    added.init = std == 0 ? Init::kZero : Init::kNormal;
    added.init_std = std;
    added.decay = true;
    return added;
  }
  Parameter& add(std::string name, std::vector<std::int64_t> shape, bool adjacent) {
    Parameter parameter;
    parameter.name = std::move(name);
    parameter.bucket = static_cast<std::int64_t>(buckets_.size()) - 1;
    parameter.offset = adjacent ? used_ : align(used_);
    parameter.shape = std::move(shape);
    used_ = parameter.offset + parameter.size();
    parameters_.push_back(std::move(parameter));
    return parameters_.back();
  }

  double init_std_;
  std::vector<Parameter> parameters_;
  std::vector<Bucket> buckets_;
  std::int64_t size_ = 0;
  std::int64_t used_ = 0;  ///< of the bucket that was opened last
};

/// Block length of mlp_flat, the one compressor whose shapes depend on it: the stages that compress
/// agree on it (the configuration is refused otherwise).
std::int64_t flat_block(const Config& config) {
  std::int64_t block = 1;
  for (const StageConfig& stage : config.schedule.stages) {
    const NsaGeometry geometry = geometry_of(config.attention, stage.rate);
    block = std::max<std::int64_t>(block, geometry.compress_block());
  }
  if (block > 1) return block;
  return geometry_of(config.attention, config.attention.compress.rate).compress_block();
}

struct PhiShape {
  std::int64_t dim = 0;     ///< of what it compresses
  std::int64_t hidden = 0;  ///< of its MLP
};

void add_phi(Builder& builder, const Config& config, const std::string& prefix, PhiShape shape) {
  const CompressConfig& compress = config.attention.compress;
  if (compress.phi == Phi::kMean) return;
  const std::int64_t inputs =
      compress.phi == Phi::kMlpFlat ? flat_block(config) * shape.dim : shape.dim;
  if (compress.phi == Phi::kPoolMlp) {
    builder.constant(prefix + "theta", {config.model.kv_heads, compress.bins}, Init::kZero).role =
        Role::kPhiTheta;
  }
  if (compress.phi == Phi::kMlpFlat) {
    builder.matrix(prefix + "position", inputs / shape.dim, shape.dim).role = Role::kPhi;
  }
  const double fan_in_std = 1.0 / std::sqrt(static_cast<double>(inputs));
  builder.matrix(prefix + "w1", shape.hidden, inputs, fan_in_std).role = Role::kPhi;
  builder.constant(prefix + "b1", {shape.hidden}, Init::kZero).role = Role::kPhi;
  // With its residual, pool_mlp starts as exact pooling. The other two have no path around the MLP:
  // zeros there would leave keys and values without a signal.
  const double w2_std =
      compress.phi == Phi::kPoolMlp
          ? 0.0
          : 1.0 / std::sqrt(static_cast<double>(std::max<std::int64_t>(shape.hidden, 1)));
  builder.matrix(prefix + "w2", shape.dim, shape.hidden, w2_std).role = Role::kPhi;
}

void add_kv(Builder& builder, const ModelConfig& model, const std::string& prefix,
            const std::string& suffix, bool with_value, Role role) {
  const std::int64_t kv_heads = model.kv_heads;
  builder.adjacent_matrix(prefix + "k" + suffix, kv_heads * model.head_dim, model.hidden).role =
      role;
  if (!with_value) return;
  builder.adjacent_matrix(prefix + "v" + suffix, kv_heads * model.v_head_dim, model.hidden).role =
      role;
}

void add_kv_pairs(Builder& builder, const Config& config, const std::string& prefix, bool dense) {
  const AttentionConfig& attention = config.attention;
  const ModelConfig& model = config.model;
  if (dense) {
    add_kv(builder, model, prefix, "", true, Role::kOrdinary);
    return;
  }
  if (attention.share_kv) {
    const bool read_elsewhere = attention.selected || attention.window_branch;
    add_kv(builder, model, prefix, "", true,
           read_elsewhere ? Role::kOrdinary : Role::kCompressedOnly);
    return;
  }
  if (reads_compressed_keys(attention)) {
    add_kv(builder, model, prefix, "_cmp", attention.compressed, Role::kCompressedOnly);
  }
  if (attention.selected) add_kv(builder, model, prefix, "_slc", true, Role::kOrdinary);
  if (attention.window_branch) add_kv(builder, model, prefix, "_win", true, Role::kOrdinary);
}

/// Of the matrices that write to the residual stream.
double residual_init_std(const ModelConfig& model) {
  return model.init_std / std::sqrt(2.0 * static_cast<double>(model.layers));
}

void add_attention(Builder& builder, const Config& config, const std::string& prefix, bool dense) {
  const ModelConfig& model = config.model;
  const AttentionConfig& attention = config.attention;
  const double residual_std = residual_init_std(model);
  builder.matrix(prefix + "q", model.heads * model.head_dim, model.hidden);
  add_kv_pairs(builder, config, prefix, dense);
  if (!dense) {
    builder.adjacent_matrix(prefix + "gate", 3 * model.heads, model.hidden);
    builder.constant(prefix + "gate_bias", {3 * model.heads}, Init::kZero);
  }
  builder.matrix(prefix + "out", model.hidden, model.heads * model.v_head_dim, residual_std);
  if (model.qk_norm) {
    const std::int64_t pairs = dense || attention.share_kv ? 1 : 3;
    builder.constant(prefix + "q_norm", {model.head_dim}, Init::kOne);
    builder.constant(prefix + "k_norm", {pairs, model.head_dim}, Init::kOne);
  }
  if (dense || !reads_compressed_keys(attention)) return;
  add_phi(builder, config, prefix + "phi_k.",
          {.dim = model.head_dim, .hidden = attention.compress.hidden_key});
  if (!attention.compressed) return;
  add_phi(builder, config, prefix + "phi_v.",
          {.dim = model.v_head_dim, .hidden = attention.compress.hidden_value});
}

void add_block(Builder& builder, const Config& config, std::int64_t layer) {
  const ModelConfig& model = config.model;
  const std::string prefix = "blocks." + std::to_string(layer) + ".";
  const double residual_std = residual_init_std(model);
  builder.open_bucket("block." + std::to_string(layer));
  builder.constant(prefix + "attn_norm.weight", {model.hidden}, Init::kOne);
  add_attention(builder, config, prefix + "attn.", is_dense_layer(config.attention, layer));
  builder.constant(prefix + "mlp_norm.weight", {model.hidden}, Init::kOne);
  builder.matrix(prefix + "mlp.gate", model.ffn, model.hidden);
  builder.adjacent_matrix(prefix + "mlp.up", model.ffn, model.hidden);
  builder.matrix(prefix + "mlp.down", model.hidden, model.ffn, residual_std);
}

}  // namespace

std::int64_t Parameter::size() const {
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) elements *= extent;
  return elements;
}

Layout::Layout(const Config& config) : attention_(config.attention) {
  const ModelConfig& model = config.model;
  Builder builder(model.init_std);
  builder.open_bucket("embedding");
  builder.matrix("embedding.weight", model.vocab_size, model.hidden);
  for (std::int64_t layer = 0; layer < model.layers; ++layer) add_block(builder, config, layer);
  builder.open_bucket("head");
  builder.constant("head.norm.weight", {model.hidden}, Init::kOne);
  if (!model.tie_embeddings) builder.matrix("head.weight", model.vocab_size, model.hidden);
  builder.close_bucket();
  size_ = builder.size();
  parameters_ = builder.take_parameters();
  buckets_ = builder.take_buckets();
}

const Parameter& Layout::find(const std::string& name) const {
  for (const Parameter& parameter : parameters_) {
    if (parameter.name == name) return parameter;
  }
  fail("Layout: there is no parameter " + name);
}

bool Layout::has(const std::string& name) const {
  return std::any_of(parameters_.begin(), parameters_.end(),
                     [&](const Parameter& parameter) { return parameter.name == name; });
}

std::int64_t Layout::begin(const Parameter& parameter) const {
  return buckets_[static_cast<std::size_t>(parameter.bucket)].begin + parameter.offset;
}

std::int64_t Layout::parameter_count() const {
  std::int64_t count = 0;
  for (const Parameter& parameter : parameters_) count += parameter.size();
  return count;
}

std::int64_t Layout::non_embedding_count() const {
  const auto last = static_cast<std::int64_t>(buckets_.size()) - 1;
  std::int64_t count = 0;
  for (const Parameter& parameter : parameters_) {
    if (parameter.bucket != 0 && parameter.bucket != last) count += parameter.size();
  }
  return count;
}

bool Layout::is_trained(const Parameter& parameter, std::int64_t rate, std::int64_t seq_len) const {
  if (parameter.role == Role::kOrdinary) return true;
  const std::int64_t block = geometry_of(attention_, rate).compress_block();
  if (!attention_.compressed || seq_len < block) return false;
  if (parameter.role == Role::kCompressedOnly) return true;
  if (rate == 1 && attention_.compress.rate1_bypass) return false;
  return parameter.role == Role::kPhi || block > 1;
}

std::uint32_t Layout::fingerprint() const {
  std::uint32_t crc = 0;
  const auto add = [&crc](const void* data, std::size_t bytes) {
    crc = crc32(crc, data, static_cast<std::int64_t>(bytes));
  };
  for (const Parameter& parameter : parameters_) {
    const auto rank = static_cast<std::int64_t>(parameter.shape.size());
    add(parameter.name.c_str(), parameter.name.size() + 1);
    add(&rank, sizeof(rank));
    add(parameter.shape.data(), parameter.shape.size() * sizeof(std::int64_t));
    add(&parameter.bucket, sizeof(parameter.bucket));
    add(&parameter.offset, sizeof(parameter.offset));
  }
  return crc;
}

}  // namespace nsa
