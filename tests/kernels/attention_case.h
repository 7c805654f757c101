#pragma once

// Attention problems whose keys are ranges, on both backends: what the tests of the dense, window
// and compressed ops share.

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/parity.h"
#include "ops/nsa_geometry.h"

namespace nsa::test {

struct AttentionShape {
  std::vector<std::int64_t> lengths = {200};
  std::int64_t heads = 4, kv_heads = 1, head_dim = 64, v_dim = 64;
  NsaGeometry geometry{};

  std::int64_t tokens() const {
    std::int64_t sum = 0;
    for (const std::int64_t length : lengths) sum += length;
    return sum;
  }
  std::int64_t compressed_rows() const {
    std::int64_t sum = 0;
    for (const std::int64_t length : lengths) {
      sum += geometry.compressed_blocks(static_cast<std::int32_t>(length));
    }
    return sum;
  }
  double scale() const { return 1.0 / std::sqrt(static_cast<double>(head_dim)); }
  std::string describe() const {
    std::string text = std::to_string(tokens()) + " tokens in " + std::to_string(lengths.size()) +
                       " documents, " + std::to_string(heads) + "/" + std::to_string(kv_heads) +
                       " heads of " + std::to_string(head_dim) + "/" + std::to_string(v_dim);
    return text + ", rate " + std::to_string(geometry.rate) + ", window " +
           std::to_string(geometry.window);
  }
};

/// Shapes around what kernels cut their work by: groups, head dims, ends of documents and tiles.
inline std::vector<AttentionShape> attention_shapes() {
  return {
      {.lengths = {300, 1, 77, 0, 322}, .heads = 4, .kv_heads = 4},
      {.lengths = {512}, .heads = 8, .kv_heads = 2, .head_dim = 128, .v_dim = 128},
      {.lengths = {129, 130}, .heads = 16, .kv_heads = 2, .head_dim = 192, .v_dim = 128},
      {.lengths = {65, 200}, .heads = 24, .kv_heads = 2, .head_dim = 80, .v_dim = 80},
      {.lengths = {31, 33, 140}, .heads = 16, .kv_heads = 1, .head_dim = 36, .v_dim = 36},
      {.lengths = {190}, .heads = 4, .kv_heads = 2, .head_dim = 256, .v_dim = 200},
      {.lengths = {90}, .heads = 3, .kv_heads = 1, .head_dim = 9, .v_dim = 7},
      {.lengths = {1, 2, 1}, .heads = 2, .kv_heads = 2},
      {.lengths = {700}, .heads = 16, .kv_heads = 1, .head_dim = 128, .v_dim = 128},
  };
}

/// The largest error of the GPU's logarithms; where the oracle's is infinite the GPU's must be.
inline ::testing::AssertionResult logarithms_agree(Parity& parity, double absolute) {
  const Owned actual = parity.fetch("lse");
  const Owned& expected = parity.expected("lse");
  for (std::int64_t i = 0; i < expected.size(); ++i) {
    const double got = actual.get(i);
    const double want = expected.get(i);
    const bool same = std::isinf(want) ? got == want : std::abs(got - want) <= absolute;
    if (!same) {
      return ::testing::AssertionFailure() << "lse[" << i << "]: " << got << ", wanted " << want;
    }
  }
  return ::testing::AssertionSuccess();
}

/// Operands and results of a problem with `rows` rows of keys. Compare the forward, then call
/// prepare_backward().
inline void add_attention(Parity& parity, const AttentionShape& shape, std::int64_t rows) {
  const std::int64_t tokens = shape.tokens();
  const auto operand = [&](const char* name, std::initializer_list<std::int64_t> extents,
                           std::uint64_t seed) {
    parity.input(name, random_normal(DType::kF32, extents, seed));
  };
  operand("q", {tokens, shape.heads, shape.head_dim}, 1);
  operand("k", {rows, shape.kv_heads, shape.head_dim}, 2);
  operand("v", {rows, shape.kv_heads, shape.v_dim}, 3);
  operand("dout", {tokens, shape.heads, shape.v_dim}, 4);
  parity.output("out", {tokens, shape.heads, shape.v_dim});
  parity.output("lse", {tokens, shape.heads}, Kind::kStat);
  parity.output("dq", {tokens, shape.heads, shape.head_dim});
  parity.output("dk", {rows, shape.kv_heads, shape.head_dim});
  parity.output("dv", {rows, shape.kv_heads, shape.v_dim});
}

/// After the forward: both backends start from the oracle's out and lse, and from gates [tokens,
/// heads, 3] with the deltas that belong to them in column `branch`; the others must not be read.
inline void prepare_backward(Parity& parity, const AttentionShape& shape, int branch) {
  parity.align("out");
  parity.align("lse");
  const std::int64_t tokens = shape.tokens();
  const Owned gates = random_normal(DType::kF32, {tokens, shape.heads, 3}, 5, 0.5);
  const Owned deltas(DType::kF32, {tokens, shape.heads, 3});
  deltas.fill(std::nan(""));
  for (std::int64_t row = 0; row < tokens * shape.heads; ++row) {
    double product = 0;
    for (std::int64_t c = 0; c < shape.v_dim; ++c) {
      const std::int64_t at = row * shape.v_dim + c;
      product += parity.expected("out").get(at) * parity.expected("dout").get(at);
    }
    deltas.set(row * 3 + branch, gates.get(row * 3 + branch) * product);
  }
  parity.input("gates", gates, Kind::kStat);
  parity.input("deltas", deltas, Kind::kStat);
}

/// The fields that the three backwards of branches share.
template <class Op, class Place>
Op branch_backward(const AttentionShape& shape, const Place& at, const Documents& documents) {
  Op op;
  op.dq = at("dq");
  op.dk = at("dk");
  op.dv = at("dv");
  op.q = at("q");
  op.k = at("k");
  op.v = at("v");
  op.lse = at("lse");
  op.dout = at("dout");
  op.gates = at("gates");
  op.deltas = at("deltas");
  op.scale = shape.scale();
  op.geometry = shape.geometry;
  op.documents = documents;
  return op;
}

inline void expect_gradients_near(Parity& parity) {
  for (const char* name : {"dq", "dk", "dv"}) {
    EXPECT_TRUE(parity.near(name, tolerance(parity.dtype(), 2e-5)));
  }
}

/// The logarithm of a sum of bf16 products, and of fp32 ones.
inline double logarithm_tolerance(DType dtype) {
  return dtype == DType::kBF16 ? 1e-3 : 2e-5;
}

}  // namespace nsa::test
