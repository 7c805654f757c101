#include "kernels/nsa_case.h"

namespace nsa {
namespace {

using test::Kind;
using test::NsaCase;
using test::Parity;
using test::random_normal;

class SelectedAttentionKernel : public test::KernelTest {};
INSTANTIATE_TEST_SUITE_P(Types, SelectedAttentionKernel,
                         ::testing::Values(DType::kF32, DType::kBF16), test::type_name);

/// Blocks chosen by random importances, the same on both sides.
void add_blocks(Parity& parity, const NsaCase& c) {
  parity.input("importance",
               random_normal(DType::kF32, {c.tokens(), c.kv_heads, c.most_blocks()}, 20),
               Kind::kStat);
  parity.output("blocks", {c.tokens(), c.kv_heads, c.geometry.top_n}, Kind::kInteger);
  parity.run(c.lengths, [&](Ops& ops, const auto& at, const Documents& documents) {
    ops.run(SelectBlocks{.blocks = at("blocks"),
                         .importance = at("importance"),
                         .geometry = c.geometry,
                         .documents = documents});
  });
  parity.align("blocks");
}

void add_forward(Parity& parity, const NsaCase& c) {
  parity.input("q", random_normal(DType::kF32, {c.tokens(), c.heads, c.head_dim}, 1));
  parity.input("k", random_normal(DType::kF32, {c.tokens(), c.kv_heads, c.head_dim}, 2));
  parity.input("v", random_normal(DType::kF32, {c.tokens(), c.kv_heads, c.v_dim}, 3));
  parity.output("out", {c.tokens(), c.heads, c.v_dim});
  parity.output("lse", {c.tokens(), c.heads}, Kind::kStat);
}

void add_backward(Parity& parity, const NsaCase& c) {
  parity.input("dout", random_normal(DType::kF32, {c.tokens(), c.heads, c.v_dim}, 4));
  parity.input("gates", random_normal(DType::kF32, {c.tokens(), c.heads, 3}, 5), Kind::kStat);
  parity.input("deltas", random_normal(DType::kF32, {c.tokens(), c.heads, 3}, 6), Kind::kStat);
  parity.input("dq", random_normal(DType::kF32, {c.tokens(), c.heads, c.head_dim}, 7));
  parity.output("dk", {c.tokens(), c.kv_heads, c.head_dim});
  parity.output("dv", {c.tokens(), c.kv_heads, c.v_dim});
}

void run_forward(Parity& parity, const NsaCase& c) {
  parity.run(c.lengths, [&](Ops& ops, const auto& at, const Documents& documents) {
    ops.run(SelectedAttentionForward{.out = at("out"),
                                     .lse = at("lse"),
                                     .blocks = at("blocks"),
                                     .q = at("q"),
                                     .k = at("k"),
                                     .v = at("v"),
                                     .scale = c.scale(),
                                     .geometry = c.geometry,
                                     .documents = documents});
  });
}

void run_backward(Parity& parity, const NsaCase& c, bool accumulate) {
  parity.run(c.lengths, [&](Ops& ops, const auto& at, const Documents& documents) {
    ops.run(SelectedAttentionBackward{{.dq = at("dq"),
                                       .dk = at("dk"),
                                       .dv = at("dv"),
                                       .q = at("q"),
                                       .k = at("k"),
                                       .v = at("v"),
                                       .lse = at("lse"),
                                       .dout = at("dout"),
                                       .gates = at("gates"),
                                       .deltas = at("deltas"),
                                       .accumulate_dq = accumulate,
                                       .scale = c.scale(),
                                       .geometry = c.geometry,
                                       .documents = documents},
                                      at("blocks")});
  });
}

TEST_P(SelectedAttentionKernel, AttendsAsTheCpuDoes) {
  for (const NsaCase& c : test::nsa_cases()) {
    SCOPED_TRACE(c.name);
    Parity parity(GetParam());
    add_blocks(parity, c);
    add_forward(parity, c);
    run_forward(parity, c);
    EXPECT_TRUE(parity.near("out", test::tolerance(GetParam())));
    EXPECT_TRUE(parity.near("lse", test::tolerance(GetParam(), 1e-5, 1e-4)));
  }
}

TEST_P(SelectedAttentionKernel, DifferentiatesAsTheCpuDoes) {
  for (const NsaCase& c : test::nsa_cases()) {
    SCOPED_TRACE(c.name);
    Parity parity(GetParam());
    add_blocks(parity, c);
    add_forward(parity, c);
    add_backward(parity, c);
    run_forward(parity, c);
    parity.align("lse");
    run_backward(parity, c, false);
    for (const char* name : {"dq", "dk", "dv"}) {
      EXPECT_TRUE(parity.near(name, test::tolerance(GetParam(), 2e-5)));
    }
  }
}

TEST_P(SelectedAttentionKernel, AddsToTheGradientOfTheQueries) {
  const NsaCase c;
  Parity parity(GetParam());
  add_blocks(parity, c);
  add_forward(parity, c);
  add_backward(parity, c);
  run_forward(parity, c);
  parity.align("lse");
  run_backward(parity, c, true);
  EXPECT_TRUE(parity.near("dq", test::tolerance(GetParam(), 2e-5)));
}

TEST_P(SelectedAttentionKernel, TwoRunsGiveTheSameBits) {
  const NsaCase c{.lengths = {2000, 90}, .heads = 8, .kv_heads = 2};
  Parity parity(GetParam());
  add_blocks(parity, c);
  add_forward(parity, c);
  add_backward(parity, c);
  run_forward(parity, c);
  parity.align("lse");
  run_backward(parity, c, false);
  const test::Owned dq = parity.fetch("dq");
  const test::Owned dk = parity.fetch("dk");
  const test::Owned dv = parity.fetch("dv");
  run_backward(parity, c, false);
  EXPECT_TRUE(test::same(parity.fetch("dq"), dq));
  EXPECT_TRUE(test::same(parity.fetch("dk"), dk));
  EXPECT_TRUE(test::same(parity.fetch("dv"), dv));
}

TEST_P(SelectedAttentionKernel, RefusesHeadsWiderThan256) {
  const NsaCase c{.lengths = {20}, .heads = 1, .head_dim = 264, .v_dim = 64};
  Parity parity(GetParam());
  add_blocks(parity, c);
  add_forward(parity, c);
  EXPECT_THROW(run_forward(parity, c), Error);
}

}  // namespace
}  // namespace nsa
