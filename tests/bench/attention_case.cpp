#include "bench/attention_case.h"

#include <cmath>

#include "train/flops.h"

namespace nsa::bench {
namespace {

constexpr std::int64_t kBins = 32;  // of phi's pooling weights

double scale_of(const BenchShape& shape) {
  return 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
}

/// Weights as they are after some training: w2 starts at zero.
PhiWeights phi_weights(const BenchShape& shape, BenchData& data) {
  const std::int64_t dim = shape.head_dim;
  const double std = 1.0 / std::sqrt(static_cast<double>(dim));
  return {.theta = data.normal({shape.kv_heads, kBins}),
          .position = {},
          .w1 = data.normal({dim, dim}, std),
          .b1 = data.normal({dim}, std),
          .w2 = data.normal({dim, dim}, std)};
}

PhiWeights phi_gradients(const BenchShape& shape, BenchData& data) {
  const std::int64_t dim = shape.head_dim;
  return {.theta = data.gradients({shape.kv_heads, kBins}),
          .position = {},
          .w1 = data.gradients({dim, dim}),
          .b1 = data.gradients({dim}),
          .w2 = data.gradients({dim, dim})};
}

template <class Forward>
BranchGradients gradients_of(const Forward& forward, BenchData& data) {
  BranchGradients op;
  op.dk = data.zeros({forward.k.dim(0), forward.k.dim(1), forward.k.dim(2)});
  op.dv = data.zeros({forward.v.dim(0), forward.v.dim(1), forward.v.dim(2)});
  op.q = forward.q;
  op.k = forward.k;
  op.v = forward.v;
  op.lse = forward.lse;
  op.scale = forward.scale;
  op.geometry = forward.geometry;
  op.documents = forward.documents;
  return op;
}

CompressBackward compress_backward_of(const CompressForward& forward, const Tensor& dout,
                                      const BenchShape& shape, BenchData& data) {
  return {.dx = data.zeros({forward.x.dim(0), forward.x.dim(1), forward.x.dim(2)}),
          .dweights = phi_gradients(shape, data),
          .dout = dout,
          .x = forward.x,
          .phi = forward.phi,
          .weights = forward.weights,
          .bypass = forward.bypass,
          .rope = forward.rope,
          .position = forward.position,
          .geometry = forward.geometry,
          .documents = forward.documents};
}

bool bypasses(const BenchShape& shape) {
  return shape.geometry.rate == 1;
}

}  // namespace

NsaCase::NsaCase(const BenchShape& shape, BenchData& data) {
  make_forward(shape, data);
  make_backward(shape, data);
}

void NsaCase::make_forward(const BenchShape& shape, BenchData& data) {
  const std::int64_t seq = shape.seq;
  const std::int64_t dim = shape.head_dim;
  const Documents documents = data.document(seq);
  const std::int64_t rows = compressed_rows(documents, shape.geometry);
  const Tensor q = data.normal({seq, shape.heads, dim});
  const auto kv = [&] { return data.normal({seq, shape.kv_heads, dim}); };
  const auto out = [&] { return data.zeros({seq, shape.heads, dim}); };
  const auto lse = [&] { return data.statistics({seq, shape.heads}); };
  const auto compress = [&] {
    CompressForward op;
    op.out = data.zeros({rows, shape.kv_heads, dim});
    op.x = kv();
    op.bypass = bypasses(shape);
    if (!op.bypass) op.weights = phi_weights(shape, data);
    op.geometry = shape.geometry;
    op.documents = documents;
    return op;
  };
  compress_k = compress();
  compress_v = compress();
  const Tensor blocks = data.zeros({seq, shape.kv_heads, shape.geometry.top_n}, DType::kI32);
  compressed = {.out = out(),
                .lse = lse(),
                .blocks = blocks,
                .importance = {},
                .q = q,
                .k = compress_k.out,
                .v = compress_v.out,
                .scale = scale_of(shape),
                .geometry = shape.geometry,
                .documents = documents};
  selected = {.out = out(),
              .lse = lse(),
              .blocks = blocks,
              .q = q,
              .k = kv(),
              .v = kv(),
              .scale = scale_of(shape),
              .geometry = shape.geometry,
              .documents = documents};
  window = {.out = out(),
            .lse = lse(),
            .q = q,
            .k = kv(),
            .v = kv(),
            .scale = scale_of(shape),
            .geometry = shape.geometry,
            .documents = documents};
  combine = {.out = out(),
             .gates = data.statistics({seq, shape.heads, 3}),
             .branches = {compressed.out, selected.out, window.out},
             .logits = data.normal({seq, shape.heads, 3}),
             .bias = data.normal({3 * shape.heads})};
}

void NsaCase::make_backward(const BenchShape& shape, BenchData& data) {
  const std::int64_t seq = shape.seq;
  gate_backward = {.dlogits = data.zeros({seq, shape.heads, 3}),
                   .dbias = data.gradients({3 * shape.heads}),
                   .deltas = data.statistics({seq, shape.heads, 3}),
                   .dout = data.normal({seq, shape.heads, shape.head_dim}),
                   .branches = combine.branches,
                   .gates = combine.gates};
  const Tensor dq = data.zeros({seq, shape.heads, shape.head_dim});
  const auto joined = [&](BranchGradients op, bool accumulate_dq) {
    op.dq = dq;
    op.dout = gate_backward.dout;
    op.gates = gate_backward.gates;
    op.deltas = gate_backward.deltas;
    op.accumulate_dq = accumulate_dq;
    return op;
  };
  window_backward = {joined(gradients_of(window, data), false)};
  selected_backward = {joined(gradients_of(selected, data), true), selected.blocks};
  compressed_backward = {joined(gradients_of(compressed, data), true)};
  compress_v_backward = compress_backward_of(compress_v, compressed_backward.dv, shape, data);
  compress_k_backward = compress_backward_of(compress_k, compressed_backward.dk, shape, data);
  if (!bypasses(shape)) return;
  compress_v_backward.dweights = {};
  compress_k_backward.dweights = {};
}

void NsaCase::forward(Ops& ops) const {
  ops.run(compress_k);
  ops.run(compress_v);
  ops.run(compressed);
  ops.run(selected);
  ops.run(window);
  ops.run(combine);
}

void NsaCase::backward(Ops& ops) const {
  ops.run(gate_backward);
  ops.run(window_backward);
  ops.run(selected_backward);
  ops.run(compressed_backward);
  ops.run(compress_v_backward);
  ops.run(compress_k_backward);
}

double attention_forward_flops(const BenchShape& shape, std::int64_t pairs) {
  return 2.0 * 2.0 * static_cast<double>(shape.heads * shape.head_dim) * static_cast<double>(pairs);
}

double attention_backward_flops(const BenchShape& shape, std::int64_t pairs) {
  return 2.5 * attention_forward_flops(shape, pairs);
}

double compress_forward_flops(const BenchShape& shape) {
  const NsaGeometry& g = shape.geometry;
  if (bypasses(shape)) return 0;
  const auto blocks = static_cast<double>(
      g.compressed_blocks(static_cast<std::int32_t>(shape.seq)) * shape.kv_heads);
  const auto dim = static_cast<double>(shape.head_dim);
  return blocks * (2.0 * g.compress_block() * dim + 4.0 * dim * dim);
}

double NsaCase::executed_forward_flops(const BenchShape& shape) {
  const NsaGeometry& g = shape.geometry;
  const std::int64_t pairs =
      pairs_compressed(shape.seq, g) + pairs_selected(shape.seq, g) + pairs_window(shape.seq, g);
  // The scores of compressed keys once more, for the importance of blocks.
  const double scoring = attention_forward_flops(shape, pairs_compressed(shape.seq, g)) / 2;
  return attention_forward_flops(shape, pairs) + scoring + 2 * compress_forward_flops(shape);
}

double NsaCase::executed_backward_flops(const BenchShape& shape) {
  const NsaGeometry& g = shape.geometry;
  const std::int64_t pairs =
      pairs_compressed(shape.seq, g) + pairs_selected(shape.seq, g) + pairs_window(shape.seq, g);
  return attention_backward_flops(shape, pairs) + 2 * 3 * compress_forward_flops(shape);
}

DenseCase::DenseCase(const BenchShape& shape, BenchData& data) {
  const std::int64_t seq = shape.seq;
  const std::int64_t dim = shape.head_dim;
  attend = {.out = data.zeros({seq, shape.heads, dim}),
            .lse = data.statistics({seq, shape.heads}),
            .q = data.normal({seq, shape.heads, dim}),
            .k = data.normal({seq, shape.kv_heads, dim}),
            .v = data.normal({seq, shape.kv_heads, dim}),
            .scale = scale_of(shape),
            .documents = data.document(seq)};
  attend_backward = {.dq = data.zeros({seq, shape.heads, dim}),
                     .dk = data.zeros({seq, shape.kv_heads, dim}),
                     .dv = data.zeros({seq, shape.kv_heads, dim}),
                     .q = attend.q,
                     .k = attend.k,
                     .v = attend.v,
                     .out = attend.out,
                     .lse = attend.lse,
                     .dout = data.normal({seq, shape.heads, dim}),
                     .scale = attend.scale,
                     .documents = attend.documents};
}

double DenseCase::executed_forward_flops(const BenchShape& shape) {
  return attention_forward_flops(shape, pairs_full(shape.seq));
}

double DenseCase::executed_backward_flops(const BenchShape& shape) {
  return attention_backward_flops(shape, pairs_full(shape.seq));
}

}  // namespace nsa::bench
