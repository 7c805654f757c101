#include "model/transformer.h"

#include <algorithm>
#include <array>
#include <string>

#include "core/buffer.h"
#include "core/error.h"
#include "model/activations.h"
#include "model/block.h"

namespace nsa {
namespace {

std::vector<BlockParameters> all_blocks(const Config& config, const ParameterStore& store) {
  std::vector<BlockParameters> blocks;
  for (std::int64_t layer = 0; layer < config.model.layers; ++layer) {
    blocks.push_back(block_parameters(store, layer));
  }
  return blocks;
}

/// No batch of so many rows has more compressed rows: a document of T tokens has at most T / rate.
PlanShape training_plan(const Config& config, const MicroShape& shape) {
  return {.rows = shape.rows,
          .compressed_rows = shape.rows / shape.geometry.compress_stride(),
          .keep = keep_of(config.memory.recompute)};
}

/// Rows of a block's fused projection: its q, keys, values and gate stand between these two.
std::int64_t projection_rows(const Layout& layout, std::int64_t layer, std::int64_t hidden) {
  const std::string prefix = "blocks." + std::to_string(layer) + ".attn.";
  const Parameter& last = layout.find(prefix + (layout.has(prefix + "gate") ? "gate" : "v"));
  return (last.offset + last.size() - layout.find(prefix + "q").offset) / hidden;
}

}  // namespace

struct Transformer::Impl {
  Impl(const Config& config, ParameterStore& store, Backend& backend,
       const std::vector<MicroShape>& shapes);

  Step begin(const Batch& batch, const NsaGeometry& geometry, Keep keep);
  void forward(const Step& step, const Batch& batch);
  LinearCrossEntropy loss_op(const Batch& batch) const;
  void backward(const Step& step, const Batch& batch, double grad_scale);

  double norm_eps;
  double z_loss;
  std::int64_t vocab_size;
  Keep train_keep;
  Device& device;
  Ops& ops;
  HeadParameters head;
  std::vector<Block> blocks;
  Activations acts;
  Buffer loss_buffer;
  Tensor loss_sums;  ///< [2], f64: of LinearCrossEntropy
  bool reuse_blocks = false;
  std::int64_t rows = 0;  ///< of the last forward
};

Transformer::Impl::Impl(const Config& config, ParameterStore& store, Backend& backend,
                        const std::vector<MicroShape>& shapes)
    : norm_eps(config.model.norm_eps),
      z_loss(config.optim.z_loss),
      vocab_size(config.model.vocab_size),
      train_keep(keep_of(config.memory.recompute)),
      device(*backend.device),
      ops(*backend.ops),
      head(head_parameters(store)),
      acts(config, all_blocks(config, store), store.dtype()),
      loss_buffer(device, 2 * size_of(DType::kF64)),
      loss_sums(loss_buffer.view(DType::kF64, {2})) {
  const std::vector<BlockParameters> parameters = all_blocks(config, store);
  for (std::int64_t layer = 0; layer < config.model.layers; ++layer) {
    blocks.emplace_back(config, layer, parameters[static_cast<std::size_t>(layer)]);
  }
  std::int64_t bytes = 0;
  for (const MicroShape& shape : shapes) {
    bytes = std::max(bytes, acts.measure(training_plan(config, shape)));
  }
  acts.allocate(device, bytes);
  device.fill_zero(loss_sums.data(), loss_sums.bytes());
}

/// Lays out the activations of a batch.
Step Transformer::Impl::begin(const Batch& batch, const NsaGeometry& geometry, Keep keep) {
  const std::int64_t batch_rows = batch.tokens.dim(0);
  check(batch.documents.tokens() == batch_rows, "Transformer: documents do not cover the batch");
  check(!reuse_blocks || batch_rows == rows, "Transformer: no blocks of so many rows to reuse");
  rows = batch_rows;
  acts.plan(
      {.rows = rows, .compressed_rows = compressed_rows(batch.documents, geometry), .keep = keep});
  return {
      .ops = ops, .documents = batch.documents, .geometry = geometry, .reuse_blocks = reuse_blocks};
}

/// Embedding, blocks, final norm.
void Transformer::Impl::forward(const Step& step, const Batch& batch) {
  const Tensor& embedded = acts.blocks.front().residual_in;
  ops.run(
      EmbeddingForward{.out = embedded, .tokens = batch.tokens, .table = head.weights.embedding});
  Stream stream{.residual = embedded, .delta = {}};
  for (std::size_t layer = 0; layer < blocks.size(); ++layer) {
    stream = blocks[layer].forward(step, stream, acts.blocks[layer], acts);
  }
  ops.run(ResidualNormForward{.y = acts.head.normed,
                              .rstd = acts.head.rstd,
                              .residual_out = acts.head.residual,
                              .residual = stream.residual,
                              .delta = stream.delta,
                              .weight = head.weights.norm,
                              .eps = norm_eps});
}

LinearCrossEntropy Transformer::Impl::loss_op(const Batch& batch) const {
  LinearCrossEntropy op;
  op.loss = loss_sums;
  op.x = acts.head.normed;
  op.weight = head.weights.head;
  op.targets = batch.targets;
  op.logits = acts.head.logits;
  op.z_loss = z_loss;
  return op;
}

/// Loss with its gradient, final norm, blocks, embedding.
void Transformer::Impl::backward(const Step& step, const Batch& batch, double grad_scale) {
  LinearCrossEntropy loss = loss_op(batch);
  loss.dx = acts.dnormed;
  loss.dweight = head.gradients.head;
  loss.grad_scale = grad_scale;
  ops.run(loss);
  ops.run(ResidualNormBackward{.dresidual = acts.dresidual,
                               .dweight = head.gradients.norm,
                               .dy = acts.dnormed,
                               .residual = acts.head.residual,
                               .rstd = acts.head.rstd,
                               .weight = head.weights.norm,
                               .accumulate = false});
  for (std::size_t layer = blocks.size(); layer-- > 0;) {
    blocks[layer].backward(step, train_keep, acts.blocks[layer], acts);
  }
  ops.run(EmbeddingBackward{
      .dtable = head.gradients.embedding, .dout = acts.dresidual, .tokens = batch.tokens});
}

ActivationBytes plan_activations(const Config& config, const Layout& layout, DType dtype,
                                 const MicroShape& shape) {
  std::vector<BlockParameters> blocks(static_cast<std::size_t>(config.model.layers));
  for (std::int64_t layer = 0; layer < config.model.layers; ++layer) {
    // Of a block's weights the plan reads the shape of the projection alone.
    blocks[static_cast<std::size_t>(layer)].weights.attention.projection = Tensor(
        nullptr, dtype, {projection_rows(layout, layer, config.model.hidden), config.model.hidden});
  }
  Activations acts(config, blocks, dtype);
  const std::int64_t arena = acts.measure(training_plan(config, shape));
  return {.arena = arena, .logits = acts.head.logits.bytes()};
}

Transformer::Transformer(const Config& config, ParameterStore& store, Backend& backend,
                         const std::vector<MicroShape>& shapes)
    : impl_(std::make_unique<Impl>(config, store, backend, shapes)) {}

Transformer::~Transformer() = default;

void Transformer::train_micro(const Batch& batch, const NsaGeometry& geometry, double grad_scale) {
  const Step step = impl_->begin(batch, geometry, impl_->train_keep);
  impl_->forward(step, batch);
  impl_->backward(step, batch, grad_scale);
}

void Transformer::evaluate(const Batch& batch, const NsaGeometry& geometry,
                           const Tensor& token_loss) {
  const Step step = impl_->begin(batch, geometry, Keep::kNothing);
  impl_->forward(step, batch);
  LinearCrossEntropy loss = impl_->loss_op(batch);
  loss.token_loss = token_loss;
  impl_->ops.run(loss);
}

Tensor Transformer::logits(const Batch& batch, const NsaGeometry& geometry, std::int64_t row) {
  const Step step = impl_->begin(batch, geometry, Keep::kNothing);
  impl_->forward(step, batch);
  return logits(row);
}

Tensor Transformer::logits(std::int64_t row) {
  const Tensor logits = impl_->acts.head.logits.slice(0, 1);
  impl_->ops.run(MatmulForward{.out = logits,
                               .x = impl_->acts.head.normed.slice(row, row + 1),
                               .weight = impl_->head.weights.head});
  return logits.reshape({impl_->vocab_size});
}

LossSums Transformer::take_loss_sums() {
  std::array<double, 2> sums{};
  Impl& impl = *impl_;
  impl.device.copy_to_host(sums.data(), impl.loss_sums.data(), impl.loss_sums.bytes());
  impl.device.fill_zero(impl.loss_sums.data(), impl.loss_sums.bytes());
  return {.cross_entropy = sums[0], .z_loss = sums[1]};
}

Tensor Transformer::selected_blocks(std::int64_t layer) const {
  return impl_->acts.blocks.at(static_cast<std::size_t>(layer)).attention.blocks;
}

void Transformer::set_reuse_blocks(bool reuse) {
  impl_->reuse_blocks = reuse;
}

std::int64_t Transformer::activation_bytes() const {
  return impl_->acts.capacity();
}

}  // namespace nsa
