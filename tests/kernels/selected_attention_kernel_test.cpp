#include <map>
#include <string>

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

/// Blocks of 64 with more adjacent queries than run side by side, so that blocks of threads go from
/// item to item: groups of 1 to 64 heads, short documents, unions of more blocks than are listed at
/// once.
std::vector<NsaCase> long_cases() {
  const auto geometry = [](std::int32_t top_n) {
    return NsaGeometry{.rate = 16, .overlap = 2, .select_block = 64, .top_n = top_n};
  };
  return {
      {.name = "many_items",
       .lengths = {1300, 1, 0, 700, 63},
       .heads = 32,
       .kv_heads = 2,
       .geometry = geometry(8)},
      {.name = "wide_items",
       .lengths = {900, 65, 64, 301},
       .heads = 16,
       .head_dim = 128,
       .v_dim = 128,
       .geometry = geometry(6)},
      {.name = "four_heads_large_unions", .lengths = {9000}, .heads = 4, .geometry = geometry(24)},
      {.name = "thirty_two_heads",
       .lengths = {500, 77},
       .heads = 32,
       .head_dim = 128,
       .v_dim = 128,
       .geometry = geometry(5)},
      {.name = "one_head",
       .lengths = {700, 3, 333},
       .heads = 3,
       .kv_heads = 3,
       .geometry = geometry(5)},
      {.name = "one_wide_head",
       .lengths = {400},
       .heads = 2,
       .kv_heads = 2,
       .head_dim = 128,
       .v_dim = 128,
       .geometry = geometry(4)},
      {.name = "two_heads",
       .lengths = {65, 900},
       .heads = 4,
       .kv_heads = 2,
       .geometry = geometry(7)},
      {.name = "sixty_four_heads", .lengths = {300, 30}, .heads = 64, .geometry = geometry(4)},
  };
}

TEST_P(SelectedAttentionKernel, GoesFromItemToItemAsTheCpuDoes) {
  for (const NsaCase& c : long_cases()) {
    SCOPED_TRACE(c.name);
    Parity parity(GetParam());
    add_blocks(parity, c);
    add_forward(parity, c);
    add_backward(parity, c);
    run_forward(parity, c);
    EXPECT_TRUE(parity.near("out", test::tolerance(GetParam())));
    EXPECT_TRUE(parity.near("lse", test::tolerance(GetParam(), 1e-5, 1e-4)));
    parity.align("lse");
    run_backward(parity, c, false);
    EXPECT_TRUE(parity.near("dq", test::tolerance(GetParam(), 2e-5)));
  }
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
  for (const NsaCase& c : {NsaCase{.lengths = {2000, 90}, .heads = 8, .kv_heads = 2},
                           NsaCase{.name = "blocks_of_64",
                           .lengths = {1300, 90},
                           .geometry = {.rate = 16, .overlap = 2, .top_n = 6}}}) {
    SCOPED_TRACE(c.name);
    Parity parity(GetParam());
    add_blocks(parity, c);
    add_forward(parity, c);
    add_backward(parity, c);
    std::map<std::string, test::Owned> before;
    const auto same_as_before = [&](const std::string& name) {
      const auto first = before.find(name);
      if (first == before.end()) {
        before.emplace(name, parity.fetch(name));
        return ::testing::AssertionSuccess();
      }
      return test::same(parity.fetch(name), first->second) << " in " << name;
    };
    for (int run = 0; run < 2; ++run) {
      run_forward(parity, c);
      EXPECT_TRUE(same_as_before("out"));
      EXPECT_TRUE(same_as_before("lse"));
      parity.align("lse");
      run_backward(parity, c, false);
      for (const char* name : {"dq", "dk", "dv"}) EXPECT_TRUE(same_as_before(name));
    }
  }
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
