#include "ops/check_fields.h"
#include "ops/dense_attention.h"
#include "ops/nsa_attention.h"

namespace nsa {
namespace {

void check_geometry(const FieldChecks& checks, const NsaGeometry& g) {
  checks.that(g.rate >= 1 && g.overlap >= 1, "geometry: rate and overlap must be at least 1");
  checks.that(g.select_block >= 1 && g.select_block % g.rate == 0,
              "geometry: select_block must be a multiple of rate");
  checks.that(g.compress_block() <= g.select_block,
              "geometry: a compressed block must not be longer than select_block");
  checks.that(g.initial >= 0 && g.local >= 1, "geometry: initial must be >= 0 and local >= 1");
  checks.that(g.top_n >= g.initial + g.local, "geometry: top_n must cover initial + local");
  checks.that(g.window >= 1, "geometry: window must be at least 1");
}

/// q, k (of `keys` rows), lse, scale and the documents.
template <class Op>
void check_inputs(const FieldChecks& checks, const Op& op, std::int64_t keys) {
  const DType dtype = op.q.dtype();
  checks.leads("q", op.q, 3);
  checks.leads("k", op.k, 3);
  checks.covers(op.documents, op.q.dim(0));
  checks.that(op.k.dim(1) >= 1 && op.q.dim(1) >= 1 && op.q.dim(1) % op.k.dim(1) == 0,
              "heads must be a positive multiple of kv_heads");
  checks.is("k", op.k, dtype, {keys, op.k.dim(1), op.q.dim(2)});
  checks.is("lse", op.lse, stat_dtype(dtype), {op.q.dim(0), op.q.dim(1)});
  checks.that(op.scale > 0, "scale must be positive");
}

/// v, whose width nothing else rules. After check_inputs().
template <class Op>
void check_values(const FieldChecks& checks, const Op& op) {
  checks.leads("v", op.v, 3);
  checks.is("v", op.v, op.q.dtype(), {op.k.dim(0), op.k.dim(1), op.v.dim(2)});
}

template <class Op>
void check_out(const FieldChecks& checks, const Op& op) {
  check_values(checks, op);
  checks.is("out", op.out, op.q.dtype(), {op.q.dim(0), op.q.dim(1), op.v.dim(2)});
}

template <class Op>
void check_blocks(const FieldChecks& checks, const Op& op) {
  checks.is("blocks", op.blocks, DType::kI32, {op.q.dim(0), op.k.dim(1), op.geometry.top_n});
}

std::int64_t tokens_of(const Documents& documents) {
  return documents.bounds.empty() ? 0 : documents.tokens();
}

std::int64_t compressed_rows_of(const Documents& documents, const NsaGeometry& geometry) {
  std::int64_t rows = 0;
  for (std::int64_t d = 0; d < documents.count(); ++d) {
    rows += geometry.compressed_blocks(static_cast<std::int32_t>(documents.length(d)));
  }
  return rows;
}

/// What the three backwards share. `keys` are the rows of k.
void check_branch(const FieldChecks& checks, const BranchGradients& op, std::int64_t keys) {
  check_inputs(checks, op, keys);
  check_values(checks, op);
  const DType dtype = op.q.dtype();
  const std::int64_t tokens = op.q.dim(0);
  const std::int64_t heads = op.q.dim(1);
  checks.is("dq", op.dq, dtype, {tokens, heads, op.q.dim(2)});
  checks.is("dk", op.dk, dtype, {keys, op.k.dim(1), op.k.dim(2)});
  checks.is("dv", op.dv, dtype, {keys, op.v.dim(1), op.v.dim(2)});
  checks.is("dout", op.dout, dtype, {tokens, heads, op.v.dim(2)});
  checks.is("gates", op.gates, stat_dtype(dtype), {tokens, heads, 3});
  checks.is("deltas", op.deltas, stat_dtype(dtype), {tokens, heads, 3});
}

}  // namespace

void CompressedSelectForward::check() const {
  const FieldChecks checks("CompressedSelectForward");
  check_geometry(checks, geometry);
  checks.that(!documents.bounds.empty(), "documents.bounds must start with 0");
  check_inputs(checks, *this, compressed_rows_of(documents, geometry));
  if (out.defined()) {
    check_out(checks, *this);
  } else {
    checks.absent("v", v);
  }
  if (blocks.defined()) check_blocks(checks, *this);
  checks.that(!reuse_blocks || blocks.defined(), "reuse_blocks needs blocks");
  checks.is_or_absent("importance", importance, stat_dtype(q.dtype()),
                      {q.dim(0), k.dim(1),
                       geometry.selection_blocks(static_cast<std::int32_t>(documents.longest()))});
}

void CompressedAttentionBackward::check() const {
  const FieldChecks checks("CompressedAttentionBackward");
  check_geometry(checks, geometry);
  checks.that(!documents.bounds.empty(), "documents.bounds must start with 0");
  check_branch(checks, *this, compressed_rows_of(documents, geometry));
}

void SelectBlocks::check() const {
  const FieldChecks checks("SelectBlocks");
  check_geometry(checks, geometry);
  checks.leads("importance", importance, 3);
  checks.covers(documents, importance.dim(0));
  checks.is("blocks", blocks, DType::kI32, {importance.dim(0), importance.dim(1), geometry.top_n});
  checks.that(importance.dim(2) >=
                  geometry.selection_blocks(static_cast<std::int32_t>(documents.longest())),
              "importance must have a column for every block of the longest document");
}

void SelectedAttentionForward::check() const {
  const FieldChecks checks("SelectedAttentionForward");
  check_geometry(checks, geometry);
  check_inputs(checks, *this, tokens_of(documents));
  check_out(checks, *this);
  check_blocks(checks, *this);
}

void SelectedAttentionBackward::check() const {
  const FieldChecks checks("SelectedAttentionBackward");
  check_geometry(checks, geometry);
  check_branch(checks, *this, tokens_of(documents));
  check_blocks(checks, *this);
}

void WindowAttentionForward::check() const {
  const FieldChecks checks("WindowAttentionForward");
  check_geometry(checks, geometry);
  check_inputs(checks, *this, tokens_of(documents));
  check_out(checks, *this);
}

void WindowAttentionBackward::check() const {
  const FieldChecks checks("WindowAttentionBackward");
  check_geometry(checks, geometry);
  check_branch(checks, *this, tokens_of(documents));
}

void DenseAttentionForward::check() const {
  const FieldChecks checks("DenseAttentionForward");
  check_inputs(checks, *this, tokens_of(documents));
  check_out(checks, *this);
}

void DenseAttentionBackward::check() const {
  const FieldChecks checks("DenseAttentionBackward");
  check_inputs(checks, *this, tokens_of(documents));
  check_out(checks, *this);
  checks.is("dq", dq, q.dtype(), {q.dim(0), q.dim(1), q.dim(2)});
  checks.is("dk", dk, q.dtype(), {k.dim(0), k.dim(1), k.dim(2)});
  checks.is("dv", dv, q.dtype(), {v.dim(0), v.dim(1), v.dim(2)});
  checks.is("dout", dout, q.dtype(), {q.dim(0), q.dim(1), v.dim(2)});
}

}  // namespace nsa
