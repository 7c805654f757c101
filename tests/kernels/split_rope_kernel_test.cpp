#include <array>
#include <numeric>

#include "kernels/parity.h"
#include "ops/split_rope.h"

namespace nsa {
namespace {

using test::Kind;
using test::Parity;
using test::random_normal;

class SplitRopeKernel : public test::KernelTest {};
INSTANTIATE_TEST_SUITE_P(Types, SplitRopeKernel, ::testing::Values(DType::kF32, DType::kBF16),
                         test::type_name);

struct Shape {
  std::int64_t heads = 4, kv_heads = 2, dim = 32, v_dim = 32;
  std::int64_t rotary_dim = 32;
  int pairs = 3;
  bool values_of_first = true;
  bool gates = true;
  bool share_kv = false;
  bool norm = false;
  bool alias = false;         ///< forward: all pairs into the tensors of the first
  bool dq = true;             ///< whether the gradient of q is there
  int without_gradient = -1;  ///< the pair whose gradients are not
  std::array<bool, 3> rotate = {false, true, true};
  std::vector<std::int64_t> lengths = {1, 200, 0, 37, 90};

  std::int64_t tokens() const {
    return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  }
};

std::string numbered(const char* name, int i) {
  std::string text = name;
  return text.append(std::to_string(i));
}

bool has_values(const Shape& s, int pair) {
  return pair > 0 || s.values_of_first;
}

std::int64_t columns_of(const Shape& s) {
  const int pairs = s.share_kv ? 1 : s.pairs;
  return s.heads * s.dim + pairs * s.kv_heads * (s.dim + s.v_dim) -
         (s.values_of_first ? 0 : s.kv_heads * s.v_dim) + (s.gates ? 3 * s.heads : 0);
}

/// Operands and results, and the gradients of both directions.
void add_tensors(Parity& parity, const Shape& s) {
  const std::int64_t tokens = s.tokens();
  const std::int64_t columns = columns_of(s);
  const auto gradient = [&](const std::string& name, std::int64_t heads, std::int64_t dim,
                            std::uint64_t seed) {
    parity.input(name, random_normal(DType::kF32, {tokens, heads, dim}, seed));
  };
  parity.input("projection", random_normal(DType::kF32, {tokens, columns}, 1));
  parity.output("q", {tokens, s.heads, s.dim});
  gradient("dq", s.heads, s.dim, 2);
  for (int i = 0; i < s.pairs; ++i) {
    parity.output(numbered("k", i), {tokens, s.kv_heads, s.dim});
    parity.output(numbered("v", i), {tokens, s.kv_heads, s.v_dim});
    const std::uint64_t seed = 10 + 2 * static_cast<std::uint64_t>(i);
    gradient(numbered("dk", i), s.kv_heads, s.dim, seed);
    gradient(numbered("dv", i), s.kv_heads, s.v_dim, seed + 1);
  }
  parity.output("gates", {tokens, s.heads, 3});
  gradient("dgates", s.heads, 3, 3);
  parity.output("dprojection", {tokens, columns});
  const std::int64_t norm_rows = s.pairs == 1 ? 1 : 3;
  parity.input("q_norm", random_normal(DType::kF32, {s.dim}, 4));
  parity.input("k_norm", random_normal(DType::kF32, {norm_rows, s.dim}, 5));
  parity.input("dq_norm", random_normal(DType::kF32, {s.dim}, 6), Kind::kStat);
  parity.input("dk_norm", random_normal(DType::kF32, {norm_rows, s.dim}, 7), Kind::kStat);
}

template <class Place>
SplitRopeForward forward_of(const Shape& s, const Place& at, const Documents& documents) {
  SplitRopeForward op;
  op.q = at("q");
  for (int i = 0; i < s.pairs; ++i) {
    const int to = s.alias ? 0 : i;
    op.pairs[static_cast<std::size_t>(i)].k = at(numbered("k", to));
    if (has_values(s, i)) op.pairs[static_cast<std::size_t>(i)].v = at(numbered("v", to));
  }
  if (s.gates) op.gate_logits = at("gates");
  op.projection = at("projection");
  if (s.norm) {
    op.q_norm = at("q_norm");
    op.k_norm = at("k_norm");
  }
  op.rotate = s.rotate;
  if (s.pairs == 1) op.rotate[0] = true;
  op.share_kv = s.share_kv;
  op.rope = {.rotary_dim = s.rotary_dim};
  op.documents = documents;
  return op;
}

template <class Place>
SplitRopeBackward backward_of(const Shape& s, const Place& at, const Documents& documents) {
  SplitRopeBackward op;
  op.layout = forward_of(s, at, documents);
  op.dprojection = at("dprojection");
  if (s.dq) op.dq = at("dq");
  for (int i = 0; i < s.pairs; ++i) {
    if (i == s.without_gradient) continue;
    op.dpairs[static_cast<std::size_t>(i)].k = at(numbered("dk", i));
    if (has_values(s, i)) op.dpairs[static_cast<std::size_t>(i)].v = at(numbered("dv", i));
  }
  if (s.gates) op.dgate_logits = at("dgates");
  if (s.norm) {
    op.dq_norm = at("dq_norm");
    op.dk_norm = at("dk_norm");
  }
  return op;
}

void compare(DType dtype, const Shape& s) {
  Parity parity(dtype);
  add_tensors(parity, s);
  parity.run(s.lengths, [&](Ops& ops, const auto& at, const Documents& documents) {
    ops.run(forward_of(s, at, documents));
    ops.run(backward_of(s, at, documents));
  });
  std::vector<std::string> names = {"q", "dprojection"};
  if (s.gates) names.emplace_back("gates");
  for (int i = 0; i < (s.alias ? 1 : s.pairs); ++i) {
    names.push_back(numbered("k", i));
    if (has_values(s, i)) names.push_back(numbered("v", i));
  }
  for (const std::string& name : names) EXPECT_TRUE(parity.near(name, test::tolerance(dtype)));
  if (!s.norm) return;
  EXPECT_TRUE(parity.near("dq_norm", test::tolerance(dtype)));
  EXPECT_TRUE(parity.near("dk_norm", test::tolerance(dtype)));
}

TEST_P(SplitRopeKernel, SplitsThreePairsAndGates) {
  compare(GetParam(), {});
}

TEST_P(SplitRopeKernel, TurnsPartOfOddHeads) {
  compare(GetParam(), {.heads = 3, .kv_heads = 1, .dim = 37, .v_dim = 21, .rotary_dim = 10});
}

TEST_P(SplitRopeKernel, LeavesHeadsWithoutRope) {
  compare(GetParam(), {.rotary_dim = 0});
}

TEST_P(SplitRopeKernel, SplitsADenseLayer) {
  compare(GetParam(), {.dim = 64, .v_dim = 64, .rotary_dim = 64, .pairs = 1, .gates = false});
}

TEST_P(SplitRopeKernel, SplitsKeysThatOnlyScore) {
  compare(GetParam(), {.values_of_first = false});
}

TEST_P(SplitRopeKernel, SharesOnePairOfColumns) {
  compare(GetParam(), {.share_kv = true});
}

TEST_P(SplitRopeKernel, NormalisesHeads) {
  compare(GetParam(), {.norm = true});
}

TEST_P(SplitRopeKernel, NormalisesSharedHeads) {
  compare(GetParam(), {.share_kv = true, .norm = true});
}

TEST_P(SplitRopeKernel, NormalisesADenseLayer) {
  compare(GetParam(),
          {.dim = 128, .v_dim = 128, .rotary_dim = 64, .pairs = 1, .gates = false, .norm = true});
}

TEST_P(SplitRopeKernel, NormalisesHeadsOfManyPacks) {
  compare(GetParam(), {.heads = 5, .dim = 192, .v_dim = 128, .rotary_dim = 64, .norm = true});
  compare(GetParam(), {.heads = 1, .kv_heads = 1, .dim = 256, .v_dim = 256, .norm = true});
  compare(GetParam(),
          {.heads = 3, .kv_heads = 1, .dim = 37, .v_dim = 5, .rotary_dim = 10, .norm = true});
}

// Three gates a head end the row: its length decides how wide a pack can be.
TEST_P(SplitRopeKernel, SplitsRowsOfEveryAlignment) {
  for (const std::int64_t heads : {1, 2, 3, 4, 6, 8, 12, 64}) {
    SCOPED_TRACE(heads);
    compare(
        GetParam(),
        {.heads = heads, .kv_heads = 1, .dim = 64, .v_dim = 64, .rotary_dim = 64, .lengths = {13}});
  }
}

TEST_P(SplitRopeKernel, SharedKeysMayTurnForSomeOnly) {
  compare(GetParam(), {.share_kv = true, .norm = true, .rotate = {false, true, false}});
  compare(GetParam(), {.share_kv = true, .rotate = {true, false, true}});
}

TEST_P(SplitRopeKernel, SharedPairsMayBeOneTensor) {
  compare(GetParam(), {.share_kv = true, .alias = true, .rotate = {true, true, true}});
  compare(GetParam(),
          {.share_kv = true, .norm = true, .alias = true, .rotate = {true, true, true}});
}

TEST_P(SplitRopeKernel, AbsentGradientsCountAsZero) {
  for (const bool norm : {false, true}) {
    for (const bool share_kv : {false, true}) {
      compare(GetParam(), {.share_kv = share_kv, .norm = norm, .dq = false});
      compare(GetParam(), {.share_kv = share_kv, .norm = norm, .without_gradient = 1});
    }
  }
}

TEST_P(SplitRopeKernel, TurnsFarPositionsAsExactlyAsNearOnes) {
  compare(GetParam(), {.heads = 1,
                       .kv_heads = 1,
                       .dim = 8,
                       .v_dim = 8,
                       .rotary_dim = 8,
                       .pairs = 1,
                       .gates = false,
                       .lengths = {131072}});
}

TEST_P(SplitRopeKernel, TwoRunsGiveTheSameGradientsOfTheNorms) {
  const Shape s{.norm = true, .lengths = {2000}};
  Parity parity(GetParam());
  add_tensors(parity, s);
  const auto run = [&] {
    parity.run(s.lengths, [&](Ops& ops, const auto& at, const Documents& documents) {
      ops.run(backward_of(s, at, documents));
    });
  };
  run();
  const test::Owned first = parity.fetch("dk_norm");
  parity.input("dk_norm", random_normal(DType::kF32, {3, s.dim}, 7), Kind::kStat);
  run();
  EXPECT_TRUE(test::same(parity.fetch("dk_norm"), first));
}

}  // namespace
}  // namespace nsa
