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
};

std::string numbered(const char* name, int i) {
  std::string text = name;
  return text.append(std::to_string(i));
}

std::int64_t columns_of(const Shape& s) {
  const int pairs = s.share_kv ? 1 : s.pairs;
  return s.heads * s.dim + pairs * s.kv_heads * (s.dim + s.v_dim) -
         (s.values_of_first ? 0 : s.kv_heads * s.v_dim) + (s.gates ? 3 * s.heads : 0);
}

void compare(DType dtype, const Shape& s) {
  const std::vector<std::int64_t> lengths = {1, 200, 0, 37, 90};
  constexpr std::int64_t kTokens = 328;
  Parity parity(dtype);
  const std::int64_t columns = columns_of(s);
  parity.input("projection", random_normal(DType::kF32, {kTokens, columns}, 1));
  parity.output("q", {kTokens, s.heads, s.dim});
  parity.input("dq", random_normal(DType::kF32, {kTokens, s.heads, s.dim}, 2));
  for (int i = 0; i < s.pairs; ++i) {
    parity.output(numbered("k", i), {kTokens, s.kv_heads, s.dim});
    parity.output(numbered("v", i), {kTokens, s.kv_heads, s.v_dim});
    const auto seed = static_cast<std::uint64_t>(10 + 2 * i);
    parity.input(numbered("dk", i), random_normal(DType::kF32, {kTokens, s.kv_heads, s.dim}, seed));
    parity.input(numbered("dv", i),
                 random_normal(DType::kF32, {kTokens, s.kv_heads, s.v_dim}, seed + 1));
  }
  parity.output("gates", {kTokens, s.heads, 3});
  parity.input("dgates", random_normal(DType::kF32, {kTokens, s.heads, 3}, 3));
  parity.output("dprojection", {kTokens, columns});
  const std::int64_t norm_rows = s.pairs == 1 ? 1 : 3;
  parity.input("q_norm", random_normal(DType::kF32, {s.dim}, 4));
  parity.input("k_norm", random_normal(DType::kF32, {norm_rows, s.dim}, 5));
  parity.input("dq_norm", random_normal(DType::kF32, {s.dim}, 6), Kind::kStat);
  parity.input("dk_norm", random_normal(DType::kF32, {norm_rows, s.dim}, 7), Kind::kStat);
  parity.run(lengths, [&](Ops& ops, const auto& at, const Documents& documents) {
    SplitRopeForward forward;
    SplitRopeBackward backward;
    forward.q = at("q");
    backward.dq = at("dq");
    for (int i = 0; i < s.pairs; ++i) {
      const auto pair = static_cast<std::size_t>(i);
      const bool values = i > 0 || s.values_of_first;
      forward.pairs[pair] = {.k = at(numbered("k", i)),
                             .v = at(values ? numbered("v", i) : std::string())};
      backward.dpairs[pair] = {.k = at(numbered("dk", i)),
                               .v = at(values ? numbered("dv", i) : std::string())};
    }
    if (s.gates) forward.gate_logits = at("gates");
    if (s.gates) backward.dgate_logits = at("dgates");
    forward.projection = at("projection");
    if (s.norm) {
      forward.q_norm = at("q_norm");
      forward.k_norm = at("k_norm");
      backward.dq_norm = at("dq_norm");
      backward.dk_norm = at("dk_norm");
    }
    forward.rotate = {s.pairs == 1, true, true};
    forward.share_kv = s.share_kv;
    forward.rope = {.rotary_dim = s.rotary_dim};
    forward.documents = documents;
    ops.run(forward);
    backward.layout = forward;
    backward.dprojection = at("dprojection");
    ops.run(backward);
  });
  std::vector<std::string> names = {"q", "dprojection"};
  if (s.gates) names.emplace_back("gates");
  for (int i = 0; i < s.pairs; ++i) {
    names.push_back(numbered("k", i));
    if (i > 0 || s.values_of_first) names.push_back(numbered("v", i));
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

}  // namespace
}  // namespace nsa
