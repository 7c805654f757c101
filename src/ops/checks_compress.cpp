// Contracts of compression and of the gates.

#include "ops/check_fields.h"
#include "ops/ops.h"

namespace nsa {
namespace {

/// Shape and type of every parameter that phi has; all others must be absent.
void check_phi(const FieldChecks& checks, const PhiWeights& weights, const Tensor& x, Phi phi,
               std::int64_t block) {
  const std::int64_t dim = x.dim(2);
  if (phi == Phi::kPoolMlp) {
    checks.leads("theta", weights.theta, 2);
    checks.that(weights.theta.dim(1) >= 1, "theta must have at least one bin");
    checks.is("theta", weights.theta, x.dtype(), {x.dim(1), weights.theta.dim(1)});
  } else {
    checks.absent("theta", weights.theta);
  }
  if (phi == Phi::kMlpFlat) {
    checks.is("position", weights.position, x.dtype(), {block, dim});
  } else {
    checks.absent("position", weights.position);
  }
  if (phi == Phi::kMean) {
    checks.absent("w1", weights.w1);
    checks.absent("b1", weights.b1);
    checks.absent("w2", weights.w2);
    return;
  }
  checks.leads("w1", weights.w1, 2);
  const std::int64_t hidden = weights.w1.dim(0);
  checks.that(hidden >= 1, "w1 must have at least one hidden row");
  checks.is("w1", weights.w1, x.dtype(), {hidden, phi == Phi::kMlpFlat ? block * dim : dim});
  checks.is("b1", weights.b1, x.dtype(), {hidden});
  checks.is("w2", weights.w2, x.dtype(), {dim, hidden});
}

/// What forward and backward share; `rows` is out or dout.
template <class Op>
void check_compress(const FieldChecks& checks, const Op& op, const char* name, const Tensor& rows) {
  checks.leads("x", op.x, 3);
  const NsaGeometry& geometry = op.geometry;
  checks.that(geometry.rate >= 1 && geometry.compress_block() >= geometry.rate,
              "rate and overlap must be at least 1");
  checks.covers(op.documents, op.x.dim(0));
  checks.is(name, rows, op.x.dtype(),
            {compressed_rows(op.documents, geometry), op.x.dim(1), op.x.dim(2)});
  const std::int64_t rotary = op.rope.rotary_dim;
  checks.that(rotary >= 0 && rotary % 2 == 0 && rotary <= op.x.dim(2),
              "rope.rotary_dim must be even and at most the head dim");
  if (op.bypass) {
    checks.that(geometry.rate == 1, "bypass needs rate 1");
  } else {
    check_phi(checks, op.weights, op.x, op.phi, geometry.compress_block());
  }
}

bool same_optional(const Tensor& gradient, const Tensor& weight) {
  if (!weight.defined()) return !gradient.defined();
  return gradient.defined() && gradient.dtype() == grad_dtype(weight.dtype()) &&
         gradient.same_shape(weight);
}

template <class Branches>
void check_branches(const FieldChecks& checks, const Branches& branches, const Tensor& like) {
  for (const Tensor& branch : branches) {
    checks.is_or_absent("branches", branch, like.dtype(), {like.dim(0), like.dim(1), like.dim(2)});
  }
}

}  // namespace

std::int64_t compressed_rows(const Documents& documents, const NsaGeometry& geometry) {
  std::int64_t rows = 0;
  for (std::int64_t d = 0; d < documents.count(); ++d) {
    rows += geometry.compressed_blocks(static_cast<std::int32_t>(documents.length(d)));
  }
  return rows;
}

void CompressForward::check() const {
  check_compress(FieldChecks("CompressForward"), *this, "out", out);
}

void CompressBackward::check() const {
  const FieldChecks checks("CompressBackward");
  check_compress(checks, *this, "dout", dout);
  checks.is("dx", dx, x.dtype(), {x.dim(0), x.dim(1), x.dim(2)});
  if (bypass) {
    for (const Tensor& gradient :
         {dweights.theta, dweights.position, dweights.w1, dweights.b1, dweights.w2}) {
      checks.absent("dweights", gradient);
    }
    return;
  }
  checks.that(same_optional(dweights.theta, weights.theta) &&
                  same_optional(dweights.position, weights.position) &&
                  same_optional(dweights.w1, weights.w1) &&
                  same_optional(dweights.b1, weights.b1) && same_optional(dweights.w2, weights.w2),
              "dweights must have the tensors of weights, with their types and shapes");
}

void GateCombineForward::check() const {
  const FieldChecks checks("GateCombineForward");
  checks.leads("out", out, 3);
  check_branches(checks, branches, out);
  const std::int64_t tokens = out.dim(0);
  const std::int64_t heads = out.dim(1);
  checks.is("gates", gates, stat_dtype(out.dtype()), {tokens, heads, 3});
  checks.is("logits", logits, out.dtype(), {tokens, heads, 3});
  checks.is("bias", bias, out.dtype(), {3 * heads});
}

void GateBackward::check() const {
  const FieldChecks checks("GateBackward");
  checks.leads("dout", dout, 3);
  check_branches(checks, branches, dout);
  const std::int64_t tokens = dout.dim(0);
  const std::int64_t heads = dout.dim(1);
  checks.is("dlogits", dlogits, dout.dtype(), {tokens, heads, 3});
  checks.is("deltas", deltas, stat_dtype(dout.dtype()), {tokens, heads, 3});
  checks.is("gates", gates, stat_dtype(dout.dtype()), {tokens, heads, 3});
  checks.is("dbias", dbias, grad_dtype(dout.dtype()), {3 * heads});
}

}  // namespace nsa
