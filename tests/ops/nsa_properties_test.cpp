// Promises that join several attention ops, or hold for each of them alike.

#include "ops/attention_parity.h"

namespace nsa::test {
namespace {

AttentionCase longer() {
  AttentionCase c;
  c.lengths = {90, 170};
  c.kv_heads = 2;
  return c;
}

std::string name_of_kind(const testing::TestParamInfo<Kind>& info) {
  switch (info.param) {
    case Kind::kDense:
      return "Dense";
    case Kind::kWindowed:
      return "Window";
    case Kind::kSelected:
      return "Selected";
    case Kind::kCompressed:
      return "Compressed";
  }
  return "";
}

class EveryAttention : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, EveryAttention,
                         testing::Values(Kind::kDense, Kind::kWindowed, Kind::kSelected,
                                         Kind::kCompressed),
                         name_of_kind);

/// Changes rows [from, to) of [rows, size / rows].
void disturb(const Owned& tensor, std::int64_t rows, std::int64_t from, std::int64_t to) {
  const std::int64_t width = tensor.size() / rows;
  for (std::int64_t i = from * width; i < to * width; ++i) {
    tensor.set(i, 3 - 2 * tensor.get(i));
  }
}

TEST_P(EveryAttention, ReadsNothingOfTheFuture) {
  AttentionCase c = longer();
  c.dtype = DType::kF32;
  c.lengths = {170};
  const AttentionData before = filled(c, GetParam());
  forward(c, GetParam(), before);
  for (const std::int64_t changed : {1, 16, 63, 64, 100, 169}) {
    const AttentionData after = filled(c, GetParam());
    disturb(after.q, c.tokens(), changed, c.tokens());
    // Compressed key i reads tokens [4 i, 4 i + 8).
    const std::int64_t row =
        GetParam() == Kind::kCompressed ? std::max(0L, changed / 4 - 1) : changed;
    disturb(after.k, after.rows, row, after.rows);
    disturb(after.v, after.rows, row, after.rows);
    forward(c, GetParam(), after);
    for (std::int64_t i = 0; i < changed * c.heads * c.v_dim; ++i) {
      ASSERT_EQ(after.out.get(i), before.out.get(i)) << "token " << changed << " changed, " << i;
    }
    for (std::int64_t i = 0; i < changed * c.heads; ++i) {
      ASSERT_EQ(after.lse.get(i), before.lse.get(i)) << "token " << changed << " changed, " << i;
    }
  }
}

class EveryBranch : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, EveryBranch,
                         testing::Values(Kind::kWindowed, Kind::kSelected, Kind::kCompressed),
                         name_of_kind);

TEST_P(EveryBranch, AddsToDqWhereAsked) {
  expect_accumulation(longer(), GetParam());
}

TEST_P(EveryAttention, AllocatesNothingTheSecondTime) {
  AttentionCase c = longer();
  Backend backend = make_backend("cpu", 1);
  const AttentionData d = filled(c, GetParam());
  forward(c, GetParam(), d, *backend.ops);
  backward(c, GetParam(), d, false, *backend.ops);
  const std::int64_t allocations = backend.device->allocations();
  forward(c, GetParam(), d, *backend.ops);
  backward(c, GetParam(), d, false, *backend.ops);
  EXPECT_EQ(backend.device->allocations(), allocations);
}

TEST(SelectionOfBlocks, ReadsNothingOfTheFuture) {
  AttentionCase c = longer();
  c.dtype = DType::kF32;
  c.lengths = {170};
  const auto blocks_after = [&](std::int64_t changed) {
    const AttentionData d(c, Kind::kCompressed);
    disturb(d.q, c.tokens(), changed, c.tokens());
    disturb(d.k, d.rows, std::min(d.rows, std::max(0L, changed / 4 - 1)), d.rows);
    ops().run(CompressedSelectForward{.out = {},
                                      .lse = d.lse,
                                      .blocks = d.blocks,
                                      .importance = {},
                                      .q = d.q,
                                      .k = d.k,
                                      .v = {},
                                      .scale = c.scale(),
                                      .geometry = c.geometry,
                                      .documents = OwnedDocuments(c.lengths)});
    return d.blocks;
  };
  const Owned before = blocks_after(c.tokens());
  for (const std::int64_t changed : {100, 150}) {
    const Owned after = blocks_after(changed);
    for (std::int64_t i = 0; i < changed * c.kv_heads * c.geometry.top_n; ++i) {
      ASSERT_EQ(after.get(i), before.get(i)) << "token " << changed << " changed, " << i;
    }
  }
}

/// Both ops on the same numbers give the same out, lse and gradients.
void expect_equals_dense(const AttentionCase& c, Kind kind) {
  const AttentionData sparse = filled(c, kind);
  const AttentionData dense(c, Kind::kDense);
  sparse.gates.fill(1);
  for (const auto& [d, k] : {std::pair(&sparse, kind), std::pair(&dense, Kind::kDense)}) {
    forward(c, k, *d);
    backward(c, k, *d);
  }
  EXPECT_TRUE(near(sparse.out, dense.out, kDefinitionTolerance));
  EXPECT_TRUE(near(sparse.lse, dense.lse, kDefinitionTolerance));
  EXPECT_TRUE(near(sparse.dq, dense.dq, kDefinitionTolerance));
  EXPECT_TRUE(near(sparse.dk, dense.dk, kDefinitionTolerance));
  EXPECT_TRUE(near(sparse.dv, dense.dv, kDefinitionTolerance));
}

TEST(SelectedAttention, OfAllBlocksIsDense) {
  AttentionCase c = longer();
  c.geometry.top_n = 11;  // 170 tokens: 11 blocks of 16.
  expect_equals_dense(c, Kind::kSelected);
}

TEST(WindowAttention, OverTheWholeDocumentIsDense) {
  AttentionCase c = longer();
  c.geometry.window = 170;
  expect_equals_dense(c, Kind::kWindowed);
}

TEST(CompressedAttention, AtRateOneIsDense) {
  AttentionCase c = longer();
  c.geometry.rate = 1;
  expect_equals_dense(c, Kind::kCompressed);
}

TEST(CompressedAttention, RowsThatSeeNothingGiveNoGradient) {
  AttentionCase c = longer();
  c.lengths = {30};
  const AttentionData d = filled(c, Kind::kCompressed);
  forward(c, Kind::kCompressed, d);
  backward(c, Kind::kCompressed, d);
  for (std::int64_t row = 0; row < 7 * c.heads; ++row) {  // The first block ends at token 7.
    EXPECT_EQ(d.lse.get(row), -std::numeric_limits<double>::infinity());
    for (std::int64_t i = 0; i < c.v_dim; ++i) EXPECT_EQ(d.out.get(row * c.v_dim + i), 0);
    for (std::int64_t i = 0; i < c.head_dim; ++i) EXPECT_EQ(d.dq.get(row * c.head_dim + i), 0);
  }
}

TEST(WindowAttention, GivesFiniteGradientsForLargeScores) {
  AttentionCase c = longer();
  c.dtype = DType::kF32;
  const AttentionData d = filled(c, Kind::kWindowed);
  for (std::int64_t i = 0; i < d.q.size(); ++i) d.q.set(i, 300 * d.q.get(i));
  forward(c, Kind::kWindowed, d);
  backward(c, Kind::kWindowed, d);
  for (const Owned& tensor : {d.out, d.lse, d.dq, d.dk, d.dv}) {
    for (const double value : tensor.values()) ASSERT_TRUE(std::isfinite(value));
  }
}

TEST(SparseAttention, NeedsNoMemoryOfTokensTimesBlocks) {
  AttentionCase c;
  c.dtype = DType::kF32;
  c.lengths = {16384};
  c.heads = 1;
  c.head_dim = c.v_dim = 4;
  c.geometry.rate = 16;
  c.geometry.overlap = 1;
  Backend backend = make_backend("cpu", 1);
  const AttentionData compressed(c, Kind::kCompressed);
  const AttentionData selected(c, Kind::kSelected);
  backend.ops->run(CompressedSelectForward{.out = compressed.out,
                                           .lse = compressed.lse,
                                           .blocks = selected.blocks,
                                           .importance = {},
                                           .q = compressed.q,
                                           .k = compressed.k,
                                           .v = compressed.v,
                                           .scale = c.scale(),
                                           .geometry = c.geometry,
                                           .documents = OwnedDocuments(c.lengths)});
  backward(c, Kind::kCompressed, compressed, false, *backend.ops);
  forward(c, Kind::kSelected, selected, *backend.ops);
  backward(c, Kind::kSelected, selected, false, *backend.ops);
  forward(c, Kind::kWindowed, selected, *backend.ops);
  backward(c, Kind::kWindowed, selected, false, *backend.ops);
  const std::int64_t full = c.tokens() * c.longest_blocks() * 4;
  EXPECT_LT(backend.device->peak_bytes(), full / 8);
}

void expect_rejected(const std::function<void(SelectedAttentionForward&)>& spoil,
                     const std::string& reason) {
  const AttentionCase c = longer();
  const AttentionData d(c, Kind::kSelected);
  choose(c, d);
  const OwnedDocuments documents(c.lengths);
  SelectedAttentionForward op{d.out, d.lse,     d.blocks,   d.q,      d.k,
                              d.v,   c.scale(), c.geometry, documents};
  spoil(op);
  try {
    ops().run(op);
    ADD_FAILURE() << "accepted, but: " << reason;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
  }
}

TEST(AttentionChecks, RejectTopNBelowTheForcedBlocks) {
  expect_rejected([](auto& op) { op.geometry.local = 9; }, "top_n");
}
TEST(AttentionChecks, RejectABlockThatTheRateDoesNotDivide) {
  expect_rejected([](auto& op) { op.geometry.rate = 3; }, "select_block");
}
TEST(AttentionChecks, RejectACompressedBlockLongerThanASelectionBlock) {
  expect_rejected([](auto& op) { op.geometry.overlap = 5; }, "compressed block");
}
TEST(AttentionChecks, RejectNoLocalBlock) {
  expect_rejected([](auto& op) { op.geometry.local = 0; }, "local");
}
TEST(AttentionChecks, RejectAnEmptyWindow) {
  expect_rejected([](auto& op) { op.geometry.window = 0; }, "window");
}
TEST(AttentionChecks, RejectAScaleOfZero) {
  expect_rejected([](auto& op) { op.scale = 0; }, "scale");
}
TEST(AttentionChecks, RejectDocumentsThatDoNotCoverTheTokens) {
  const OwnedDocuments fewer({90, 169});
  expect_rejected([&](auto& op) { op.documents = fewer; }, "documents.bounds");
}
TEST(AttentionChecks, RejectHeadsThatKvHeadsDoNotDivide) {
  const Owned k = random_normal(DType::kF64, {260, 3, 8}, 1);
  expect_rejected([&](auto& op) { op.k = k; }, "kv_heads");
}
TEST(AttentionChecks, RejectStatisticsOfAnotherType) {
  const Owned lse(DType::kF32, {260, 4});
  expect_rejected([&](auto& op) { op.lse = lse; }, "lse");
}
TEST(AttentionChecks, RejectMissingBlocks) {
  expect_rejected([](auto& op) { op.blocks = {}; }, "blocks");
}

}  // namespace
}  // namespace nsa::test
