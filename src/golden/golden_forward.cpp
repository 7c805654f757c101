// The forward half of a golden run.

#include "golden/golden_run.h"

namespace nsa {

/// The projection of every token: from the inputs of the file, or by the layer's weights.
void GoldenRun::project() {
  if (golden_.is_layer()) {
    std::vector<double> weight;
    for (const ProjectionPart& part : parts_) {
      const std::vector<double> rows = golden_.file.values("in." + part.weight);
      weight.insert(weight.end(), rows.begin(), rows.end());
    }
    x_ = input("x");
    weight_ = work_.upload({columns_, golden_.model_dim}, weight);
    projection_ = work_.result({tokens(), columns_});
    ops_.run(MatmulForward{.out = projection_, .x = x_, .weight = weight_});
    compare_projection();
    return;
  }
  std::vector<double> rows(static_cast<std::size_t>(tokens() * columns_));
  std::int64_t begin = 0;
  for (const ProjectionPart& part : parts_) {
    const std::vector<double> values = golden_.file.values("in." + part.name);
    for (std::int64_t i = 0; i < tokens() * part.width(); ++i) {
      const std::int64_t at = i / part.width() * columns_ + begin + i % part.width();
      rows[static_cast<std::size_t>(at)] = values[static_cast<std::size_t>(i)];
    }
    begin += part.width();
  }
  projection_ = work_.upload({tokens(), columns_}, rows);
}

void GoldenRun::compare_projection() {
  const std::vector<double> rows = work_.download(projection_);
  const std::vector<double> bias = golden_.file.values("in.b_g");
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    std::vector<double> values = part_of(rows, p);
    if (parts_[p].name == "gate_logits") {
      for (std::size_t i = 0; i < values.size(); ++i) values[i] += bias[i % bias.size()];
    }
    compare_.near("mid." + parts_[p].name, values);
  }
}

/// The columns of one part of projection rows, or the rows of one part of the fused weight.
std::vector<double> GoldenRun::part_of(const std::vector<double>& rows, std::size_t part) const {
  std::int64_t begin = 0;
  for (std::size_t p = 0; p < part; ++p) begin += parts_[p].width();
  std::vector<double> values;
  for (std::int64_t at = begin; at < static_cast<std::int64_t>(rows.size()); at += columns_) {
    const auto first = rows.begin() + at;
    values.insert(values.end(), first, first + parts_[part].width());
  }
  return values;
}

void GoldenRun::split() {
  split_.q = per_query(golden_.head_dim);
  for (KvPair& pair : split_.pairs) {
    pair = {.k = per_key(tokens(), golden_.head_dim), .v = per_key(tokens(), golden_.v_dim)};
  }
  split_.gate_logits = per_query(3);
  split_.projection = projection_;
  split_.rotate = {golden_.compress_rope == CompressRope::kBefore, true, true};
  split_.rope = golden_.rope;
  split_.documents = documents_;
  ops_.run(split_);
}

PhiWeights GoldenRun::phi_weights(const std::string& which) {
  PhiWeights weights;
  if (golden_.phi == Phi::kMean) return weights;
  weights.w1 = input(which + ".w1");
  weights.b1 = input(which + ".b1");
  weights.w2 = input(which + ".w2");
  if (golden_.phi == Phi::kPoolMlp) weights.theta = input(which + ".theta");
  if (golden_.phi == Phi::kMlpFlat) weights.position = input(which + ".pe");
  return weights;
}

CompressForward GoldenRun::compression(const Tensor& out, const Tensor& x,
                                       const PhiWeights& weights) {
  return {.out = out,
          .x = x,
          .phi = golden_.phi,
          .weights = weights,
          .bypass = golden_.bypass,
          .rope = {},
          .position = golden_.position,
          .geometry = golden_.geometry,
          .documents = documents_};
}

void GoldenRun::compress() {
  std::vector<double> offsets;
  for (std::size_t count = 1; count <= golden_.bounds.size(); ++count) {
    const Documents some{.bounds = documents_.bounds.first(count), .device_bounds = {}};
    offsets.push_back(static_cast<double>(compressed_rows(some, golden_.geometry)));
  }
  compare_.exact("mid.cu_cmp", offsets);

  phi_k_ = phi_weights("phi_k");
  phi_v_ = phi_weights("phi_v");
  kt_ = per_key(rows_, golden_.head_dim);
  vt_ = per_key(rows_, golden_.v_dim);
  CompressForward keys = compression(kt_, split_.pairs[0].k, phi_k_);
  keys.rope = compressed_rope();
  ops_.run(keys);
  ops_.run(compression(vt_, split_.pairs[0].v, phi_v_));
  near("mid.kt", kt_);
  near("mid.vt", vt_);
  if (golden_.compress_rope == CompressRope::kAfter) {
    const Tensor raw = per_key(rows_, golden_.head_dim);
    ops_.run(compression(raw, split_.pairs[0].k, phi_k_));
    near("mid.kt_raw", raw);
  }
}

/// The branch with the file's blocks, which must not change it, and with a selection of its own.
void GoldenRun::attend_compressed() {
  const std::int64_t top_n = golden_.geometry.top_n;
  const std::int64_t blocks = golden_.file.entry("mid.score").shape[2];
  const Tensor chosen = work_.upload(
      DType::kI32, {tokens(), golden_.kv_heads, top_n},
      std::vector<double>(static_cast<std::size_t>(tokens() * golden_.kv_heads * top_n), -7.0));
  CompressedSelectForward op{.out = per_query(golden_.v_dim),
                             .lse = statistics({tokens(), golden_.heads}),
                             .blocks = chosen,
                             .importance = statistics({tokens(), golden_.kv_heads, blocks}),
                             .q = split_.q,
                             .k = kt_,
                             .v = vt_,
                             .reuse_blocks = false,
                             .scale = golden_.scale,
                             .geometry = golden_.geometry,
                             .documents = documents_};
  ops_.run(op);
  near("mid.score", op.importance);
  compare_.selection(work_.download(chosen));
  check_selection();
  const std::vector<double> first_out = work_.download(op.out);
  const std::vector<double> first_lse = work_.download(op.lse);

  op.out = out_[kCompressed] = per_query(golden_.v_dim);
  op.lse = lse_[kCompressed] = statistics({tokens(), golden_.heads});
  op.blocks = blocks_;
  op.importance = {};
  op.reuse_blocks = true;
  ops_.run(op);
  near("out.o_cmp", op.out);
  near("out.lse_cmp", op.lse);
  compare_.equal("out.o_cmp without a selection", work_.download(op.out), first_out);
  compare_.equal("out.lse_cmp without a selection", work_.download(op.lse), first_lse);
  compare_.exact("mid.sel_idx", work_.download(blocks_));
}

/// The top-n step from the file's scores must give the file's blocks on every row. Leaves the
/// file's blocks for the ops that follow.
void GoldenRun::check_selection() {
  const std::int64_t top_n = golden_.geometry.top_n;
  const std::int64_t blocks = golden_.file.entry("mid.score").shape[2];
  const std::vector<double> expected = golden_.file.values("mid.sel_idx");
  const Tensor chosen = work_.upload(DType::kI32, {tokens(), golden_.kv_heads, top_n},
                                     std::vector<double>(expected.size(), -7.0));
  ops_.run(SelectBlocks{.blocks = chosen,
                        .importance = work_.upload(stat_, {tokens(), golden_.kv_heads, blocks},
                                                   golden_.file.values("mid.score")),
                        .geometry = golden_.geometry,
                        .documents = documents_});
  compare_.equal("mid.sel_idx from mid.score", work_.download(chosen), expected);
  blocks_ = work_.upload(DType::kI32, {tokens(), golden_.kv_heads, top_n}, expected);
}

void GoldenRun::attend_selected() {
  out_[kSelected] = per_query(golden_.v_dim);
  lse_[kSelected] = statistics({tokens(), golden_.heads});
  ops_.run(SelectedAttentionForward{.out = out_[kSelected],
                                    .lse = lse_[kSelected],
                                    .blocks = blocks_,
                                    .q = split_.q,
                                    .k = split_.pairs[kSelected].k,
                                    .v = split_.pairs[kSelected].v,
                                    .scale = golden_.scale,
                                    .geometry = golden_.geometry,
                                    .documents = documents_});
  near("out.o_slc", out_[kSelected]);
  near("out.lse_slc", lse_[kSelected]);
}

void GoldenRun::attend_window() {
  out_[kWindow] = per_query(golden_.v_dim);
  lse_[kWindow] = statistics({tokens(), golden_.heads});
  ops_.run(WindowAttentionForward{.out = out_[kWindow],
                                  .lse = lse_[kWindow],
                                  .q = split_.q,
                                  .k = split_.pairs[kWindow].k,
                                  .v = split_.pairs[kWindow].v,
                                  .scale = golden_.scale,
                                  .geometry = golden_.geometry,
                                  .documents = documents_});
  near("out.o_win", out_[kWindow]);
  near("out.lse_win", lse_[kWindow]);
}

void GoldenRun::combine() {
  const std::int64_t heads = golden_.heads;
  combined_ = per_query(golden_.v_dim);
  gates_ = statistics({tokens(), heads, 3});
  ops_.run(
      GateCombineForward{.out = combined_,
                         .gates = gates_,
                         .branches = out_,
                         .logits = split_.gate_logits,
                         .bias = golden_.is_layer() ? input("b_g") : work_.zeros({3 * heads})});
  near("mid.gates", gates_);
  near("out.out", combined_);
  if (!golden_.is_layer()) return;
  const Tensor y = work_.result({tokens(), golden_.model_dim});
  ops_.run(MatmulForward{
      .out = y, .x = combined_.reshape({tokens(), heads * golden_.v_dim}), .weight = input("w_o")});
  near("out.y", y);
}

}  // namespace nsa
