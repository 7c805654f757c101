#pragma once

// The promises that every attention op makes, each written once for a Kind.

#include "ops/attention_cases.h"
#include "support/gradcheck.h"
#include "support/near.h"

namespace nsa::test {

constexpr double kDefinitionTolerance = 1e-12;
constexpr double kSingleTolerance = 1e-5;

inline AttentionData filled(const AttentionCase& c, Kind kind, std::uint64_t seed = 1) {
  AttentionData d(c, kind, seed);
  if (kind == Kind::kSelected) choose(c, d);
  return d;
}

inline void expect_definition(AttentionCase c, Kind kind) {
  for (const DType dtype : {DType::kF64, DType::kF32}) {
    c.dtype = dtype;
    const double tolerance = dtype == DType::kF64 ? kDefinitionTolerance : kSingleTolerance;
    const AttentionData d = filled(c, kind);
    forward(c, kind, d);
    const Owned out(DType::kF64, {c.tokens(), c.heads, c.v_dim});
    const Owned lse(DType::kF64, {c.tokens(), c.heads});
    define(c, d, key_lists(c, kind, d.blocks), out, lse);
    EXPECT_TRUE(near(d.out, out, tolerance)) << name_of(dtype);
    EXPECT_TRUE(near(d.lse, lse, tolerance)) << name_of(dtype);
  }
}

inline void expect_gradients(const AttentionCase& c, Kind kind) {
  const AttentionData d = filled(c, kind);
  forward(c, kind, d);
  backward(c, kind, d);
  const auto value = [&] { return objective(c, kind, d); };
  constexpr std::int64_t kElements = 40;
  expect_gradient("dq", value, d.q, d.dq, kElements);
  expect_gradient("dk", value, d.k, d.dk, kElements);
  expect_gradient("dv", value, d.v, d.dv, kElements);
}

/// Up to fp32 rounding of terms of about 1, of which a gradient may be the cancelled rest.
inline void expect_close(const Owned& single, const Owned& exact, const char* name) {
  constexpr double kTolerance = 5e-5;
  double largest = 1;
  for (const double value : exact.values()) largest = std::max(largest, std::abs(value));
  for (std::int64_t i = 0; i < exact.size(); ++i) {
    ASSERT_NEAR(single.get(i), exact.get(i), kTolerance * largest) << name << " at " << i;
  }
}

/// fp32 gradients against those of the same numbers in fp64.
inline void expect_single_gradients(AttentionCase c, Kind kind) {
  const AttentionData exact = filled(c, kind);
  c.dtype = DType::kF32;
  AttentionData d(c, kind);
  d.blocks = exact.blocks;
  c.dtype = DType::kF64;
  forward(c, kind, exact);
  backward(c, kind, exact);
  c.dtype = DType::kF32;
  forward(c, kind, d);
  backward(c, kind, d);
  expect_close(d.dq, exact.dq, "dq");
  expect_close(d.dk, exact.dk, "dk");
  expect_close(d.dv, exact.dv, "dv");
}

inline void expect_accumulation(const AttentionCase& c, Kind kind) {
  const AttentionData d = filled(c, kind);
  forward(c, kind, d);
  backward(c, kind, d);
  const std::vector<double> alone = d.dq.values();
  d.dq.fill(0.5);
  backward(c, kind, d, true);
  for (std::size_t i = 0; i < alone.size(); ++i) {
    ASSERT_NEAR(d.dq.get(static_cast<std::int64_t>(i)), alone[i] + 0.5, 1e-12);
  }
}

/// Elements [from, to) of `whole` are those of `part`, bit for bit.
inline void expect_part(const Owned& whole, std::int64_t from, const Owned& part,
                        const char* name) {
  for (std::int64_t i = 0; i < part.size(); ++i) {
    ASSERT_EQ(whole.get(from + i), part.get(i)) << name << " at " << i;
  }
}

inline void copy_part(const Owned& whole, std::int64_t from, const Owned& part) {
  for (std::int64_t i = 0; i < part.size(); ++i) part.set(i, whole.get(from + i));
}

inline void expect_packed_equals_separate(AttentionCase c, Kind kind, DType dtype) {
  c.dtype = dtype;
  const AttentionData packed = filled(c, kind);
  forward(c, kind, packed);
  backward(c, kind, packed);
  std::int64_t token = 0;
  std::int64_t row = 0;
  for (const std::int64_t length : c.lengths) {
    AttentionCase one = c;
    one.lengths = {length};
    const AttentionData d(one, kind);
    const std::int64_t query = token * c.heads;
    const std::int64_t key = row * c.kv_heads;
    copy_part(packed.q, query * c.head_dim, d.q);
    copy_part(packed.dout, query * c.v_dim, d.dout);
    copy_part(packed.gates, query * 3, d.gates);
    copy_part(packed.k, key * c.head_dim, d.k);
    copy_part(packed.v, key * c.v_dim, d.v);
    copy_part(packed.blocks, token * c.kv_heads * c.geometry.top_n, d.blocks);
    forward(one, kind, d);
    backward(one, kind, d);
    expect_part(packed.out, query * c.v_dim, d.out, "out");
    expect_part(packed.lse, query, d.lse, "lse");
    expect_part(packed.dq, query * c.head_dim, d.dq, "dq");
    expect_part(packed.dk, key * c.head_dim, d.dk, "dk");
    expect_part(packed.dv, key * c.v_dim, d.dv, "dv");
    token += length;
    row += d.rows;
  }
}

inline void expect_same_on_any_threads(AttentionCase c, Kind kind) {
  c.dtype = DType::kF32;
  AttentionData one = filled(c, kind);
  AttentionData three = filled(c, kind);
  forward(c, kind, one, ops(1));
  backward(c, kind, one, false, ops(1));
  forward(c, kind, three, ops(3));
  backward(c, kind, three, false, ops(3));
  EXPECT_TRUE(same(three.out, one.out));
  EXPECT_TRUE(same(three.lse, one.lse));
  EXPECT_TRUE(same(three.dq, one.dq));
  EXPECT_TRUE(same(three.dk, one.dk));
  EXPECT_TRUE(same(three.dv, one.dv));
}

}  // namespace nsa::test
