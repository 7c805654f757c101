#include "bench/op_cases.h"

#include <algorithm>
#include <array>
#include <memory>

namespace nsa::bench {
namespace {

constexpr std::int64_t kVocabulary = 32768;
// What model/ takes at a time: 64 MiB of them on the GPU, where a chunk must fill it.
constexpr std::int64_t kLogitRows = 64;
constexpr std::int64_t kLogitRowsOnGpu = 2048;

/// Width of the MLP: 2.75 x hidden, in whole cache lines (2816 at 1024).
std::int64_t ffn_of(const BenchShape& shape) {
  return (shape.hidden() * 11 / 4 + 63) / 64 * 64;
}

double product_flops(std::int64_t rows, std::int64_t n, std::int64_t k) {
  return 2.0 * static_cast<double>(rows) * static_cast<double>(n) * static_cast<double>(k);
}

OpCase matmul_forward(const BenchShape& shape, BenchData& data, Ops& /*ops*/) {
  const std::int64_t n = 2 * ffn_of(shape);  // gate and up of the MLP in one
  const MatmulForward op{.out = data.zeros({shape.seq, n}),
                         .x = data.normal({shape.seq, shape.hidden()}),
                         .weight = data.normal({n, shape.hidden()})};
  return case_of(op, product_flops(shape.seq, n, shape.hidden()),
                 traffic({op.out, op.x, op.weight}));
}

OpCase matmul_backward_input(const BenchShape& shape, BenchData& data, Ops& /*ops*/) {
  const std::int64_t n = 2 * ffn_of(shape);
  const MatmulBackwardInput op{.dx = data.zeros({shape.seq, shape.hidden()}),
                               .dout = data.normal({shape.seq, n}),
                               .weight = data.normal({n, shape.hidden()})};
  return case_of(op, product_flops(shape.seq, n, shape.hidden()),
                 traffic({op.dx, op.dout, op.weight}));
}

OpCase matmul_backward_weight(const BenchShape& shape, BenchData& data, Ops& /*ops*/) {
  const std::int64_t n = 2 * ffn_of(shape);
  const MatmulBackwardWeight op{.dweight = data.gradients({n, shape.hidden()}),
                                .dout = data.normal({shape.seq, n}),
                                .x = data.normal({shape.seq, shape.hidden()})};
  return case_of(op, product_flops(shape.seq, n, shape.hidden()),
                 traffic({op.dweight, op.dweight, op.dout, op.x}));
}

OpCase residual_norm_forward(const BenchShape& shape, BenchData& data, Ops& /*ops*/) {
  const std::int64_t dim = shape.hidden();
  const ResidualNormForward op{.y = data.zeros({shape.seq, dim}),
                               .rstd = data.statistics({shape.seq}),
                               .residual_out = data.zeros({shape.seq, dim}),
                               .residual = data.normal({shape.seq, dim}),
                               .delta = data.normal({shape.seq, dim}),
                               .weight = data.normal({dim})};
  return case_of(op, 0,
                 traffic({op.y, op.rstd, op.residual_out, op.residual, op.delta, op.weight}));
}

OpCase residual_norm_backward(const BenchShape& shape, BenchData& data, Ops& ops) {
  const std::int64_t dim = shape.hidden();
  const Tensor residual = data.normal({shape.seq, dim});
  const Tensor weight = data.normal({dim});
  const Tensor rstd = data.statistics({shape.seq});
  ops.run(ResidualNormForward{.y = data.zeros({shape.seq, dim}),
                              .rstd = rstd,
                              .residual_out = {},
                              .residual = residual,
                              .delta = {},
                              .weight = weight});
  // Overwritten, not added to: a sum over thousands of repetitions would leave the range of floats.
  const ResidualNormBackward op{.dresidual = data.zeros({shape.seq, dim}),
                                .dweight = data.gradients({dim}),
                                .dy = data.normal({shape.seq, dim}),
                                .residual = residual,
                                .rstd = rstd,
                                .weight = weight,
                                .accumulate = false};
  return case_of(op, 0, traffic({op.dresidual, op.dweight, op.dy, residual, rstd, weight}));
}

/// The projection of an NSA layer; both directions.
struct SplitOperands {
  SplitOperands(const BenchShape& shape, BenchData& data) {
    const std::int64_t kv_columns = 6 * shape.kv_heads * shape.head_dim;
    columns = shape.hidden() + kv_columns + 3 * shape.heads;
    for (KvPair& pair : forward.pairs) {
      pair.k = data.zeros({shape.seq, shape.kv_heads, shape.head_dim});
      pair.v = data.zeros({shape.seq, shape.kv_heads, shape.head_dim});
    }
    forward.q = data.zeros({shape.seq, shape.heads, shape.head_dim});
    forward.gate_logits = data.zeros({shape.seq, shape.heads, 3});
    forward.projection = data.normal({shape.seq, columns});
    forward.rotate = {false, true, true};
    forward.rope = {.rotary_dim = shape.head_dim / 2 * 2};
    forward.documents = data.document(shape.seq);
  }
  std::int64_t columns = 0;
  SplitRopeForward forward;
};

OpCase split_rope_forward(const BenchShape& shape, BenchData& data, Ops& /*ops*/) {
  const SplitOperands operands(shape, data);
  const Tensor& projection = operands.forward.projection;
  return case_of(operands.forward, 0, traffic({projection, projection}));
}

OpCase split_rope_backward(const BenchShape& shape, BenchData& data, Ops& /*ops*/) {
  const SplitOperands operands(shape, data);
  SplitRopeBackward op;
  op.layout = operands.forward;
  op.dprojection = data.zeros({shape.seq, operands.columns});
  op.dq = data.normal({shape.seq, shape.heads, shape.head_dim});
  for (KvPair& pair : op.dpairs) {
    pair.k = data.normal({shape.seq, shape.kv_heads, shape.head_dim});
    pair.v = data.normal({shape.seq, shape.kv_heads, shape.head_dim});
  }
  op.dgate_logits = data.normal({shape.seq, shape.heads, 3});
  return case_of(op, 0, traffic({op.dprojection, op.dprojection}));
}

OpCase swiglu_forward(const BenchShape& shape, BenchData& data, Ops& /*ops*/) {
  const std::int64_t ffn = ffn_of(shape);
  const SwiGluForward op{.y = data.zeros({shape.seq, ffn}),
                         .gate_up = data.normal({shape.seq, 2 * ffn})};
  return case_of(op, 0, traffic({op.y, op.gate_up}));
}

OpCase swiglu_backward(const BenchShape& shape, BenchData& data, Ops& /*ops*/) {
  const std::int64_t ffn = ffn_of(shape);
  const SwiGluBackward op{.dgate_up = data.zeros({shape.seq, 2 * ffn}),
                          .dy = data.normal({shape.seq, ffn}),
                          .gate_up = data.normal({shape.seq, 2 * ffn})};
  return case_of(op, 0, traffic({op.dgate_up, op.dy, op.gate_up}));
}

OpCase embedding_forward(const BenchShape& shape, BenchData& data, Ops& /*ops*/) {
  const EmbeddingForward op{.out = data.zeros({shape.seq, shape.hidden()}),
                            .tokens = data.ids(shape.seq, kVocabulary),
                            .table = data.normal({kVocabulary, shape.hidden()})};
  return case_of(op, 0, traffic({op.out, op.out, op.tokens}));
}

OpCase embedding_backward(const BenchShape& shape, BenchData& data, Ops& /*ops*/) {
  const EmbeddingBackward op{.dtable = data.gradients({kVocabulary, shape.hidden()}),
                             .dout = data.normal({shape.seq, shape.hidden()}),
                             .tokens = data.ids(shape.seq, kVocabulary)};
  // As many rows of the table are read and written as there are tokens.
  return case_of(op, 0, traffic({op.dout, op.dout, op.dout, op.tokens}));
}

OpCase linear_cross_entropy(const BenchShape& shape, BenchData& data, Ops& /*ops*/) {
  LinearCrossEntropy op;
  op.loss = data.zeros({2}, DType::kF64);
  op.dx = data.zeros({shape.seq, shape.hidden()});
  op.dweight = data.gradients({kVocabulary, shape.hidden()});
  op.x = data.normal({shape.seq, shape.hidden()});
  op.weight = data.normal({kVocabulary, shape.hidden()}, 0.02);
  op.targets = data.ids(shape.seq, kVocabulary);
  op.logits =
      data.zeros({std::min(shape.seq, data.dtype() == DType::kBF16 ? kLogitRowsOnGpu : kLogitRows),
                  kVocabulary});
  op.grad_scale = 1.0 / static_cast<double>(shape.seq);
  return case_of(op, 3 * product_flops(shape.seq, kVocabulary, shape.hidden()),
                 traffic({op.dx, op.dweight, op.dweight, op.x, op.weight, op.targets}));
}

/// As many elements as the matrices of a block have.
std::int64_t optimizer_elements(const BenchShape& shape) {
  return shape.hidden() * (2 * shape.hidden() + 3 * ffn_of(shape));
}

OpCase sum_squares(const BenchShape& shape, BenchData& data, Ops& /*ops*/) {
  const SumSquares op{.sum = data.zeros({1}, DType::kF64),
                      .x = data.normal_fp32({optimizer_elements(shape)})};
  return case_of(op, 0, traffic({op.x}));
}

OpCase adamw(const BenchShape& shape, BenchData& data, Ops& ops) {
  const std::int64_t count = optimizer_elements(shape);
  const auto ranges = std::make_shared<std::array<AdamWRange, 1>>();
  (*ranges)[0] = {.begin = 0, .end = count, .updates = 1, .weight_decay = 0.1};
  AdamW op;
  op.master = data.normal_fp32({count});
  op.weights = data.dtype() == DType::kF32 ? op.master : data.zeros({count});
  op.m = data.gradients({count});
  op.v = data.gradients({count});
  op.grad = data.normal_fp32({count});
  op.grad_square_sum = data.zeros({1}, DType::kF64);
  ops.run(SumSquares{.sum = op.grad_square_sum, .x = op.grad});
  op.ranges = *ranges;
  op.learning_rate = 1e-4;
  op.max_norm = 1;
  return {.run = [op, ranges](Ops& on) { on.run(op); },
          .flops = 0,
          .bytes = traffic({op.master, op.master, op.m, op.m, op.v, op.v, op.grad}) +
                   (op.weights.data() == op.master.data() ? 0 : traffic({op.weights}))};
}

}  // namespace

double traffic(std::initializer_list<Tensor> operands) {
  std::int64_t bytes = 0;
  for (const Tensor& operand : operands) bytes += operand.bytes();
  return static_cast<double>(bytes);
}

std::vector<NamedCase> dense_op_cases() {
  return {{"matmul_forward", matmul_forward},
          {"matmul_backward_input", matmul_backward_input},
          {"matmul_backward_weight", matmul_backward_weight},
          {"residual_norm_forward", residual_norm_forward},
          {"residual_norm_backward", residual_norm_backward},
          {"split_rope_forward", split_rope_forward},
          {"split_rope_backward", split_rope_backward},
          {"swiglu_forward", swiglu_forward},
          {"swiglu_backward", swiglu_backward},
          {"embedding_forward", embedding_forward},
          {"embedding_backward", embedding_backward},
          {"linear_cross_entropy", linear_cross_entropy}};
}

std::vector<NamedCase> optimizer_op_cases() {
  return {{"sum_squares", sum_squares}, {"adamw", adamw}};
}

std::vector<NamedCase> op_cases() {
  std::vector<NamedCase> all = dense_op_cases();
  for (const auto& part : {attention_op_cases(), optimizer_op_cases()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace nsa::bench
