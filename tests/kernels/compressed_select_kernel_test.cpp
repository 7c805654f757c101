#include <algorithm>

#include "kernels/nsa_case.h"

namespace nsa {
namespace {

using test::Kind;
using test::NsaCase;
using test::Parity;
using test::random_normal;

class CompressedSelectKernel : public test::KernelTest {};
INSTANTIATE_TEST_SUITE_P(Types, CompressedSelectKernel,
                         ::testing::Values(DType::kF32, DType::kBF16), test::type_name);

void add_inputs(Parity& parity, const NsaCase& c) {
  parity.input("q", random_normal(DType::kF32, {c.tokens(), c.heads, c.head_dim}, 1));
  parity.input("k", random_normal(DType::kF32, {c.compressed(), c.kv_heads, c.head_dim}, 2));
  parity.input("v", random_normal(DType::kF32, {c.compressed(), c.kv_heads, c.v_dim}, 3));
  parity.output("out", {c.tokens(), c.heads, c.v_dim});
  parity.output("lse", {c.tokens(), c.heads}, Kind::kStat);
  parity.output("blocks", {c.tokens(), c.kv_heads, c.geometry.top_n}, Kind::kInteger);
  parity.output("importance", {c.tokens(), c.kv_heads, c.most_blocks()}, Kind::kStat);
}

/// The op with the operands named; "" leaves one out.
template <class Place>
CompressedSelectForward select_op(const NsaCase& c, const Place& at, const Documents& documents,
                                  const char* out, const char* blocks, const char* importance) {
  return {.out = at(out),
          .lse = at("lse"),
          .blocks = at(blocks),
          .importance = at(importance),
          .q = at("q"),
          .k = at("k"),
          .v = at(*out == '\0' ? "" : "v"),
          .scale = c.scale(),
          .geometry = c.geometry,
          .documents = documents};
}

/// Slots of "blocks" where the GPU chose another block, of all of them.
double different_share(Parity& parity) {
  const test::Owned got = parity.fetch("blocks");
  const test::Owned& want = parity.expected("blocks");
  std::int64_t different = 0;
  for (std::int64_t i = 0; i < want.size(); ++i) different += got.get(i) != want.get(i) ? 1 : 0;
  return static_cast<double>(different) /
         static_cast<double>(std::max<std::int64_t>(1, want.size()));
}

TEST_P(CompressedSelectKernel, AttendsScoresAndSelectsAsTheCpuDoes) {
  for (const NsaCase& c : test::nsa_cases()) {
    SCOPED_TRACE(c.name);
    Parity parity(GetParam());
    add_inputs(parity, c);
    parity.run(c.lengths, [&](Ops& ops, const auto& at, const Documents& documents) {
      ops.run(select_op(c, at, documents, "out", "blocks", "importance"));
    });
    EXPECT_TRUE(parity.near("out", test::tolerance(GetParam())));
    EXPECT_TRUE(parity.near("lse", test::tolerance(GetParam(), 1e-5, 1e-4)));
    // Scores are not rounded to the type under test: only their order of summation differs.
    EXPECT_TRUE(parity.near("importance", test::tolerance(GetParam(), 1e-5, 1e-4)));
    EXPECT_LE(different_share(parity), test::tolerance(GetParam(), 0, 0.01));
  }
}

TEST_P(CompressedSelectKernel, SelectsWithoutAnImportanceTensor) {
  for (const NsaCase& c : test::nsa_cases()) {
    SCOPED_TRACE(c.name);
    Parity parity(GetParam());
    add_inputs(parity, c);
    parity.run(c.lengths, [&](Ops& ops, const auto& at, const Documents& documents) {
      ops.run(select_op(c, at, documents, "", "blocks", ""));
    });
    EXPECT_TRUE(parity.near("lse", test::tolerance(GetParam(), 1e-5, 1e-4)));
    EXPECT_LE(different_share(parity), test::tolerance(GetParam(), 0, 0.01));
  }
}

TEST_P(CompressedSelectKernel, ChunksOfQueriesChangeNothing) {
  // Long enough that the scores of all queries do not fit in one chunk.
  const NsaCase c{.lengths = {5000},
                  .heads = 4,
                  .kv_heads = 4,
                  .head_dim = 8,
                  .v_dim = 8,
                  .geometry = {.rate = 4, .overlap = 1, .select_block = 4, .top_n = 6}};
  Parity parity(GetParam());
  add_inputs(parity, c);
  parity.run(c.lengths, [&](Ops& ops, const auto& at, const Documents& documents) {
    ops.run(select_op(c, at, documents, "", "blocks", ""));
  });
  EXPECT_LE(different_share(parity), test::tolerance(GetParam(), 1e-3, 0.01));
}

TEST_P(CompressedSelectKernel, ReusedBlocksAreLeftAlone) {
  const NsaCase c;
  Parity parity(GetParam());
  add_inputs(parity, c);
  test::Owned given(DType::kI32, {c.tokens(), c.kv_heads, c.geometry.top_n});
  given.fill(3);
  parity.input("given", given, Kind::kInteger);
  parity.run(c.lengths, [&](Ops& ops, const auto& at, const Documents& documents) {
    CompressedSelectForward op = select_op(c, at, documents, "out", "given", "");
    op.reuse_blocks = true;
    ops.run(op);
  });
  EXPECT_TRUE(parity.same("given"));
  EXPECT_TRUE(parity.near("out", test::tolerance(GetParam())));
}

}  // namespace
}  // namespace nsa
