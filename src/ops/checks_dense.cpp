#include <algorithm>

#include "ops/cast.h"
#include "ops/check_fields.h"
#include "ops/embedding.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/optim.h"
#include "ops/split_rope.h"
#include "ops/swiglu.h"

namespace nsa {

void MatmulForward::check() const {
  const FieldChecks op("MatmulForward");
  op.leads("x", x, 2);
  op.leads("weight", weight, 2);
  op.is("weight", weight, x.dtype(), {weight.dim(0), x.dim(1)});
  op.is("out", out, x.dtype(), {x.dim(0), weight.dim(0)});
}

void MatmulBackwardInput::check() const {
  const FieldChecks op("MatmulBackwardInput");
  op.leads("dout", dout, 2);
  op.leads("weight", weight, 2);
  op.is("weight", weight, dout.dtype(), {dout.dim(1), weight.dim(1)});
  op.is("dx", dx, dout.dtype(), {dout.dim(0), weight.dim(1)});
}

void MatmulBackwardWeight::check() const {
  const FieldChecks op("MatmulBackwardWeight");
  op.leads("dout", dout, 2);
  op.leads("x", x, 2);
  op.is("x", x, dout.dtype(), {dout.dim(0), x.dim(1)});
  op.is("dweight", dweight, grad_dtype(dout.dtype()), {dout.dim(1), x.dim(1)});
}

void ResidualNormForward::check() const {
  const FieldChecks op("ResidualNormForward");
  op.leads("residual", residual, 2);
  const DType type = residual.dtype();
  const std::int64_t rows = residual.dim(0);
  const std::int64_t dim = residual.dim(1);
  op.that(dim >= 1, "residual must have at least one column");
  op.is("y", y, type, {rows, dim});
  op.is("rstd", rstd, stat_dtype(type), {rows});
  op.is("weight", weight, type, {dim});
  op.is_or_absent("delta", delta, type, {rows, dim});
  if (delta.defined()) {
    op.is("residual_out", residual_out, type, {rows, dim});
  } else {
    op.absent("residual_out (delta is undefined)", residual_out);
  }
  op.that(eps >= 0, "eps must not be negative");
}

void ResidualNormBackward::check() const {
  const FieldChecks op("ResidualNormBackward");
  op.leads("residual", residual, 2);
  const DType type = residual.dtype();
  const std::int64_t rows = residual.dim(0);
  const std::int64_t dim = residual.dim(1);
  op.that(dim >= 1, "residual must have at least one column");
  op.is("dresidual", dresidual, type, {rows, dim});
  op.is("dweight", dweight, grad_dtype(type), {dim});
  op.is("dy", dy, type, {rows, dim});
  op.is("rstd", rstd, stat_dtype(type), {rows});
  op.is("weight", weight, type, {dim});
}

namespace {

/// What the tensors of a SplitRopeForward must agree on.
struct SplitExtents {
  std::int64_t tokens = 0, heads = 0, dim = 0, kv_heads = 0, v_dim = 0, columns = 0;
};

SplitExtents split_extents(const SplitRopeForward& s) {
  SplitExtents e = {.tokens = s.q.dim(0), .heads = s.q.dim(1), .dim = s.q.dim(2)};
  std::int64_t keys = 0;
  std::int64_t values = 0;
  for (const KvPair& pair : s.pairs) {
    keys += pair.k.defined() ? 1 : 0;
    values += pair.v.defined() ? 1 : 0;
    if (pair.k.defined() && pair.k.rank() == 3) e.kv_heads = pair.k.dim(1);
    if (pair.v.defined() && pair.v.rank() == 3) {
      e.kv_heads = pair.v.dim(1);
      e.v_dim = pair.v.dim(2);
    }
  }
  if (s.share_kv) keys = std::min<std::int64_t>(keys, 1);
  if (s.share_kv) values = std::min<std::int64_t>(values, 1);
  e.columns = e.heads * e.dim + e.kv_heads * (keys * e.dim + values * e.v_dim) +
              (s.gate_logits.defined() ? 3 * e.heads : 0);
  return e;
}

/// The tensors of heads of either direction.
void check_heads(const FieldChecks& op, const SplitExtents& e, DType type,
                 const std::array<KvPair, 3>& pairs, const Tensor& gate_logits) {
  for (const KvPair& pair : pairs) {
    op.is_or_absent("k of a pair", pair.k, type, {e.tokens, e.kv_heads, e.dim});
    op.is_or_absent("v of a pair", pair.v, type, {e.tokens, e.kv_heads, e.v_dim});
  }
  op.is_or_absent("gate logits", gate_logits, type, {e.tokens, e.heads, 3});
}

void check_layout(const FieldChecks& op, const SplitRopeForward& s) {
  op.leads("q", s.q, 3);
  const SplitExtents e = split_extents(s);
  const DType type = s.q.dtype();
  check_heads(op, e, type, s.pairs, s.gate_logits);
  op.is_or_absent("q_norm", s.q_norm, type, {e.dim});
  if (s.q_norm.defined()) {
    const bool only_first = s.share_kv || !(s.pairs[1].k.defined() || s.pairs[2].k.defined());
    op.leads("k_norm", s.k_norm, 2);
    op.is("k_norm", s.k_norm, type, {only_first && s.k_norm.dim(0) == 1 ? 1 : 3, e.dim});
  } else {
    op.absent("k_norm (q_norm is undefined)", s.k_norm);
  }
  const std::int64_t turning = s.rope.rotary_dim;
  op.that(turning >= 0 && turning % 2 == 0 && turning <= e.dim,
          "rope.rotary_dim must be even and at most head_dim");
  op.that(turning == 0 || s.rope.base > 0, "rope.base must be positive");
  op.that(s.norm_eps >= 0, "norm_eps must not be negative");
  op.covers(s.documents, e.tokens);
}

}  // namespace

void SplitRopeForward::check() const {
  const FieldChecks op("SplitRopeForward");
  check_layout(op, *this);
  op.is("projection", projection, q.dtype(), {q.dim(0), split_extents(*this).columns});
}

void SplitRopeBackward::check() const {
  const FieldChecks op("SplitRopeBackward");
  check_layout(op, layout);
  const SplitExtents e = split_extents(layout);
  const DType type = layout.q.dtype();
  op.is("dprojection", dprojection, type, {e.tokens, e.columns});
  op.is_or_absent("dq", dq, type, {e.tokens, e.heads, e.dim});
  check_heads(op, e, type, dpairs, dgate_logits);
  for (std::size_t i = 0; i < dpairs.size(); ++i) {
    op.that(layout.pairs[i].k.defined() || !dpairs[i].k.defined(),
            "dpairs has a gradient of keys that the layout lacks");
    op.that(layout.pairs[i].v.defined() || !dpairs[i].v.defined(),
            "dpairs has a gradient of values that the layout lacks");
  }
  op.that(layout.gate_logits.defined() || !dgate_logits.defined(),
          "dgate_logits is given for a layout without gates");
  if (layout.q_norm.defined()) {
    op.is("dq_norm", dq_norm, grad_dtype(type), {e.dim});
    op.is("dk_norm", dk_norm, grad_dtype(type), {layout.k_norm.dim(0), e.dim});
    op.is("layout.projection", layout.projection, type, {e.tokens, e.columns});
  } else {
    op.absent("dq_norm (layout.q_norm is undefined)", dq_norm);
    op.absent("dk_norm (layout.q_norm is undefined)", dk_norm);
  }
}

void SwiGluForward::check() const {
  const FieldChecks op("SwiGluForward");
  op.leads("y", y, 2);
  op.is("gate_up", gate_up, y.dtype(), {y.dim(0), 2 * y.dim(1)});
}

void SwiGluBackward::check() const {
  const FieldChecks op("SwiGluBackward");
  op.leads("dy", dy, 2);
  op.is("gate_up", gate_up, dy.dtype(), {dy.dim(0), 2 * dy.dim(1)});
  op.is("dgate_up", dgate_up, dy.dtype(), {dy.dim(0), 2 * dy.dim(1)});
}

void EmbeddingForward::check() const {
  const FieldChecks op("EmbeddingForward");
  op.leads("table", table, 2);
  op.leads("out", out, 2);
  op.is("out", out, table.dtype(), {out.dim(0), table.dim(1)});
  op.is("tokens", tokens, DType::kI32, {out.dim(0)});
}

void EmbeddingBackward::check() const {
  const FieldChecks op("EmbeddingBackward");
  op.leads("dout", dout, 2);
  op.leads("dtable", dtable, 2);
  op.is("dtable", dtable, grad_dtype(dout.dtype()), {dtable.dim(0), dout.dim(1)});
  op.is("tokens", tokens, DType::kI32, {dout.dim(0)});
}

void LinearCrossEntropy::check() const {
  const FieldChecks op("LinearCrossEntropy");
  op.leads("x", x, 2);
  op.leads("weight", weight, 2);
  op.leads("logits", logits, 2);
  const DType type = x.dtype();
  const std::int64_t rows = x.dim(0);
  const std::int64_t vocabulary = weight.dim(0);
  op.that(vocabulary >= 1, "weight must have at least one row");
  op.is("weight", weight, type, {vocabulary, x.dim(1)});
  op.is("logits", logits, type, {logits.dim(0), vocabulary});
  op.that(logits.dim(0) >= 1, "logits must have at least one row");
  op.is("loss", loss, DType::kF64, {2});
  op.is("targets", targets, DType::kI32, {rows});
  op.is_or_absent("token_loss", token_loss, stat_dtype(type), {rows});
  op.that(dx.defined() == dweight.defined(), "dx and dweight must be given together");
  op.is_or_absent("dx", dx, type, {rows, x.dim(1)});
  op.is_or_absent("dweight", dweight, grad_dtype(type), {vocabulary, x.dim(1)});
  op.that(z_loss >= 0, "z_loss must not be negative");
}

void Cast::check() const {
  const FieldChecks op("Cast");
  op.leads("in", in, 1);
  op.leads("out", out, 1);
  op.that(in.size() == out.size(), "in and out must have as many elements");
}

void SumSquares::check() const {
  const FieldChecks op("SumSquares");
  op.leads("x", x, 1);
  op.is("sum", sum, DType::kF64, {1});
}

void AdamW::check() const {
  const FieldChecks op("AdamW");
  op.leads("master", master, 1);
  const DType type = master.dtype();
  const std::int64_t count = master.dim(0);
  op.leads("weights", weights, 1);
  op.that(grad_dtype(weights.dtype()) == type, "master must have the type of gradients");
  op.is("weights", weights, weights.dtype(), {count});
  op.leads("m", m, 1);
  op.that(m.dtype() == type || (type == DType::kF32 && m.dtype() == DType::kBF16),
          "m must have the type of master, or be bf16 beside fp32");
  op.is("m", m, m.dtype(), {count});
  op.is("v", v, m.dtype(), {count});
  op.is("grad", grad, type, {count});
  op.is("grad_square_sum", grad_square_sum, DType::kF64, {1});
  std::int64_t end = 0;
  for (const AdamWRange& range : ranges) {
    op.that(range.begin >= end && range.end >= range.begin && range.end <= count,
            "ranges must be in ascending order, disjoint and within count");
    op.that(range.updates >= 1, "updates of a range must be at least 1");
    end = range.end;
  }
  op.that(0 <= beta1 && beta1 < 1 && 0 <= beta2 && beta2 < 1, "betas must be in [0, 1)");
  op.that(eps >= 0 && max_norm >= 0, "eps and max_norm must not be negative");
}

}  // namespace nsa
