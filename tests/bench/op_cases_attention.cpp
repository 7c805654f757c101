#include "bench/attention_case.h"
#include "bench/op_cases.h"
#include "train/flops.h"

namespace nsa::bench {
namespace {

/// Operands that a whole forward and backward has filled, so that any op of them can be repeated.
NsaCase filled_nsa(const BenchShape& shape, BenchData& data, Ops& ops) {
  NsaCase nsa(shape, data);
  nsa.forward(ops);
  nsa.backward(ops);
  return nsa;
}

DenseCase filled_dense(const BenchShape& shape, BenchData& data, Ops& ops) {
  DenseCase dense(shape, data);
  dense.forward(ops);
  return dense;
}

OpCase compress_forward(const BenchShape& shape, BenchData& data, Ops& ops) {
  const CompressForward op = filled_nsa(shape, data, ops).compress_k;
  return case_of(op, compress_forward_flops(shape), traffic({op.out, op.x}));
}

OpCase compress_backward(const BenchShape& shape, BenchData& data, Ops& ops) {
  const CompressBackward op = filled_nsa(shape, data, ops).compress_k_backward;
  return case_of(op, 3 * compress_forward_flops(shape), traffic({op.dx, op.dout, op.x}));
}

OpCase compressed_select_forward(const BenchShape& shape, BenchData& data, Ops& ops) {
  const CompressedSelectForward op = filled_nsa(shape, data, ops).compressed;
  const std::int64_t pairs = pairs_compressed(shape.seq, shape.geometry);
  // The products of attention, and half of them once more for the importance of blocks.
  return case_of(op, 1.5 * attention_forward_flops(shape, pairs),
                 traffic({op.out, op.lse, op.blocks, op.q, op.k, op.v}));
}

OpCase select_blocks(const BenchShape& shape, BenchData& data, Ops& /*ops*/) {
  const std::int64_t blocks = shape.geometry.selection_blocks(static_cast<std::int32_t>(shape.seq));
  SelectBlocks op;
  op.blocks = data.zeros({shape.seq, shape.kv_heads, shape.geometry.top_n}, DType::kI32);
  op.importance = data.normal_fp32({shape.seq, shape.kv_heads, blocks});
  op.geometry = shape.geometry;
  op.documents = data.document(shape.seq);
  // A query reads the blocks up to its own: half of them on average.
  return case_of(op, 0, traffic({op.blocks}) + traffic({op.importance}) / 2);
}

template <class Forward>
OpCase forward_case(const Forward& op, const BenchShape& shape, std::int64_t pairs) {
  return case_of(op, attention_forward_flops(shape, pairs),
                 traffic({op.out, op.lse, op.q, op.k, op.v}));
}

template <class Backward>
OpCase backward_case(Backward op, const BenchShape& shape, std::int64_t pairs) {
  return case_of(op, attention_backward_flops(shape, pairs),
                 traffic({op.dq, op.dk, op.dv, op.q, op.k, op.v, op.dout, op.lse, op.lse}));
}

/// A branch by itself overwrites dq: a sum over all repetitions would leave the range of floats.
template <class Backward>
OpCase branch_case(Backward op, const BenchShape& shape, std::int64_t pairs) {
  op.accumulate_dq = false;
  return backward_case(op, shape, pairs);
}

OpCase compressed_attention_backward(const BenchShape& shape, BenchData& data, Ops& ops) {
  return branch_case(filled_nsa(shape, data, ops).compressed_backward, shape,
                     pairs_compressed(shape.seq, shape.geometry));
}

OpCase selected_attention_forward(const BenchShape& shape, BenchData& data, Ops& ops) {
  return forward_case(filled_nsa(shape, data, ops).selected, shape,
                      pairs_selected(shape.seq, shape.geometry));
}

OpCase selected_attention_backward(const BenchShape& shape, BenchData& data, Ops& ops) {
  return branch_case(filled_nsa(shape, data, ops).selected_backward, shape,
                     pairs_selected(shape.seq, shape.geometry));
}

OpCase window_attention_forward(const BenchShape& shape, BenchData& data, Ops& ops) {
  return forward_case(filled_nsa(shape, data, ops).window, shape,
                      pairs_window(shape.seq, shape.geometry));
}

OpCase window_attention_backward(const BenchShape& shape, BenchData& data, Ops& ops) {
  return branch_case(filled_nsa(shape, data, ops).window_backward, shape,
                     pairs_window(shape.seq, shape.geometry));
}

OpCase gate_combine_forward(const BenchShape& shape, BenchData& data, Ops& ops) {
  const GateCombineForward op = filled_nsa(shape, data, ops).combine;
  return case_of(op, 0, traffic({op.out, op.out, op.out, op.out, op.gates, op.logits}));
}

OpCase gate_backward(const BenchShape& shape, BenchData& data, Ops& ops) {
  const GateBackward op = filled_nsa(shape, data, ops).gate_backward;
  return case_of(op, 0,
                 traffic({op.dout, op.dout, op.dout, op.dout, op.gates, op.deltas, op.dlogits}));
}

OpCase dense_attention_forward(const BenchShape& shape, BenchData& data, Ops& ops) {
  return forward_case(filled_dense(shape, data, ops).attend, shape, pairs_full(shape.seq));
}

OpCase dense_attention_backward(const BenchShape& shape, BenchData& data, Ops& ops) {
  return backward_case(filled_dense(shape, data, ops).attend_backward, shape,
                       pairs_full(shape.seq));
}

}  // namespace

std::vector<NamedCase> attention_op_cases() {
  return {{"compress_forward", compress_forward},
          {"compress_backward", compress_backward},
          {"compressed_select_forward", compressed_select_forward},
          {"compressed_attention_backward", compressed_attention_backward},
          {"select_blocks", select_blocks},
          {"selected_attention_forward", selected_attention_forward},
          {"selected_attention_backward", selected_attention_backward},
          {"window_attention_forward", window_attention_forward},
          {"window_attention_backward", window_attention_backward},
          {"gate_combine_forward", gate_combine_forward},
          {"gate_backward", gate_backward},
          {"dense_attention_forward", dense_attention_forward},
          {"dense_attention_backward", dense_attention_backward}};
}

}  // namespace nsa::bench
