// The backward half of a golden run.

#include <cmath>

#include "golden/golden_run.h"

namespace nsa {

void GoldenRun::differentiate_gates() {
  const std::int64_t width = golden_.heads * golden_.v_dim;
  if (golden_.is_layer()) {
    const Tensor dy = input("d_y");
    const Tensor dflat = work_.result({tokens(), width});
    const Tensor dweight = work_.gradients({golden_.model_dim, width});
    ops_.run(MatmulBackwardInput{.dx = dflat, .dout = dy, .weight = input("w_o")});
    ops_.run(MatmulBackwardWeight{
        .dweight = dweight, .dout = dy, .x = combined_.reshape({tokens(), width})});
    near("grad.w_o", dweight);
    dout_ = dflat.reshape({tokens(), golden_.heads, golden_.v_dim});
  } else {
    dout_ = work_.upload({tokens(), golden_.heads, golden_.v_dim}, golden_.file.values("in.d_out"));
  }
  dlogits_ = per_query(3);
  dbias_ = work_.gradients({3 * golden_.heads});
  deltas_ = statistics({tokens(), golden_.heads, 3});
  ops_.run(GateBackward{.dlogits = dlogits_,
                        .dbias = dbias_,
                        .deltas = deltas_,
                        .dout = dout_,
                        .branches = out_,
                        .gates = gates_});
  if (golden_.is_layer()) near("grad.b_g", dbias_);
}

void GoldenRun::differentiate_branches() {
  dq_ = per_query(golden_.head_dim);
  const auto gradients = [&](std::size_t branch, const KvPair& kv) {
    const std::int64_t rows = kv.k.dim(0);
    dpairs_[branch] = {.k = per_key(rows, golden_.head_dim), .v = per_key(rows, golden_.v_dim)};
    return BranchGradients{.dq = dq_,
                           .dk = dpairs_[branch].k,
                           .dv = dpairs_[branch].v,
                           .q = split_.q,
                           .k = kv.k,
                           .v = kv.v,
                           .lse = lse_[branch],
                           .dout = dout_,
                           .gates = gates_,
                           .deltas = deltas_,
                           .accumulate_dq = branch != kCompressed,
                           .scale = golden_.scale,
                           .geometry = golden_.geometry,
                           .documents = documents_};
  };
  ops_.run(CompressedAttentionBackward{gradients(kCompressed, {.k = kt_, .v = vt_})});
  ops_.run(SelectedAttentionBackward{gradients(kSelected, split_.pairs[kSelected]), blocks_});
  ops_.run(WindowAttentionBackward{gradients(kWindow, split_.pairs[kWindow])});
}

/// Compressed rows turned back to before RoPE, as the formula of RoPE says it.
std::vector<double> GoldenRun::turned_back(std::vector<double> rows) const {
  const RopeSpec rope = compressed_rope();
  const std::int64_t half = rope.rotary_dim / 2;
  const NsaGeometry& geometry = golden_.geometry;
  double* row = rows.data();
  for (std::int64_t d = 0; d < documents_.count(); ++d) {
    const std::int64_t blocks =
        geometry.compressed_blocks(static_cast<std::int32_t>(documents_.length(d)));
    for (std::int64_t i = 0; i < blocks * golden_.kv_heads; ++i, row += golden_.head_dim) {
      const std::int64_t position =
          i / golden_.kv_heads * geometry.compress_stride() +
          compress_position_offset(golden_.position, geometry.compress_block());
      for (std::int64_t c = 0; c < half; ++c) {
        const double exponent = -2.0 * static_cast<double>(c) / static_cast<double>(2 * half);
        const double angle = static_cast<double>(position) * std::pow(rope.base, exponent);
        const double first = row[c];
        const double second = row[half + c];
        row[c] = first * std::cos(angle) + second * std::sin(angle);
        row[half + c] = second * std::cos(angle) - first * std::sin(angle);
      }
    }
  }
  return rows;
}

PhiWeights GoldenRun::phi_gradients(const PhiWeights& weights) {
  const auto like = [&](const Tensor& weight) {
    if (!weight.defined()) return Tensor();
    return weight.rank() == 1 ? work_.gradients({weight.dim(0)})
                              : work_.gradients({weight.dim(0), weight.dim(1)});
  };
  return {.theta = like(weights.theta),
          .position = like(weights.position),
          .w1 = like(weights.w1),
          .b1 = like(weights.b1),
          .w2 = like(weights.w2)};
}

void GoldenRun::compare_phi(const std::string& which, const PhiWeights& gradients) {
  const auto compare = [&](const char* name, const Tensor& gradient) {
    if (gradient.defined()) near("grad." + which + "." + name, gradient);
  };
  compare("theta", gradients.theta);
  compare("pe", gradients.position);
  compare("w1", gradients.w1);
  compare("b1", gradients.b1);
  compare("w2", gradients.w2);
}

void GoldenRun::differentiate_compression() {
  const KvPair compressed = dpairs_[kCompressed];
  near("grad.kt", compressed.k);
  near("grad.vt", compressed.v);
  if (golden_.compress_rope == CompressRope::kAfter) {
    compare_.near("grad.kt_raw", turned_back(work_.download(compressed.k)));
  }
  const auto run = [&](const Tensor& dout, const Tensor& x, const PhiWeights& weights,
                       const RopeSpec& rope, const std::string& which) {
    const PhiWeights gradients = phi_gradients(weights);
    const Tensor dx = per_key(tokens(), x.dim(2));
    ops_.run(CompressBackward{.dx = dx,
                              .dweights = golden_.bypass ? PhiWeights{} : gradients,
                              .dout = dout,
                              .x = x,
                              .phi = golden_.phi,
                              .weights = weights,
                              .bypass = golden_.bypass,
                              .rope = rope,
                              .position = golden_.position,
                              .geometry = golden_.geometry,
                              .documents = documents_});
    compare_phi(which, gradients);
    return dx;
  };
  const KvPair& inputs = split_.pairs[kCompressed];
  dpairs_[kCompressed] = {.k = run(compressed.k, inputs.k, phi_k_, compressed_rope(), "phi_k"),
                          .v = run(compressed.v, inputs.v, phi_v_, RopeSpec{}, "phi_v")};
}

void GoldenRun::differentiate_projection() {
  const Tensor dprojection = work_.result({tokens(), columns_});
  ops_.run(SplitRopeBackward{.dprojection = dprojection,
                             .dq_norm = {},
                             .dk_norm = {},
                             .dq = dq_,
                             .dpairs = dpairs_,
                             .dgate_logits = dlogits_,
                             .layout = split_});
  if (!golden_.is_layer()) {
    const std::vector<double> rows = work_.download(dprojection);
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      compare_.near("grad." + parts_[p].name, part_of(rows, p));
    }
    return;
  }
  const Tensor dx = work_.result({tokens(), golden_.model_dim});
  const Tensor dweight = work_.gradients({columns_, golden_.model_dim});
  ops_.run(MatmulBackwardInput{.dx = dx, .dout = dprojection, .weight = weight_});
  ops_.run(MatmulBackwardWeight{.dweight = dweight, .dout = dprojection, .x = x_});
  near("grad.x", dx);
  std::int64_t begin = 0;
  for (const ProjectionPart& part : parts_) {
    near("grad." + part.weight, dweight.slice(begin, begin + part.width()));
    begin += part.width();
  }
}

}  // namespace nsa
