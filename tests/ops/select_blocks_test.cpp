#include <algorithm>
#include <numeric>
#include <set>

#include "ops/attention_cases.h"
#include "support/near.h"

namespace nsa::test {
namespace {

AttentionCase small_blocks() {
  AttentionCase c;
  c.lengths = {1, 5, 90, 0, 61};
  c.kv_heads = 2;
  c.geometry = {.rate = 2,
                .overlap = 2,
                .select_block = 4,
                .top_n = 6,
                .initial = 1,
                .local = 2,
                .window = 5};
  return c;
}

Owned select(const AttentionCase& c, const Owned& importance) {
  Owned blocks(DType::kI32, {c.tokens(), c.kv_heads, c.geometry.top_n});
  blocks.fill(777);
  ops().run(SelectBlocks{blocks, importance, c.geometry, OwnedDocuments(c.lengths)});
  return blocks;
}

/// The definition: sort all candidates by (forced first, importance, lower index), take top_n.
std::vector<double> define_blocks(const AttentionCase& c, std::int64_t t,
                                  const std::vector<double>& scores) {
  const NsaGeometry& g = c.geometry;
  const std::int64_t current = t / g.select_block;
  const auto forced = [&](std::int64_t j) { return j < g.initial || j > current - g.local; };
  std::vector<std::int64_t> order(static_cast<std::size_t>(current + 1));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    if (forced(a) != forced(b)) return forced(a);
    return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
  });
  order.resize(std::min(order.size(), static_cast<std::size_t>(g.top_n)));
  std::sort(order.begin(), order.end());
  order.resize(static_cast<std::size_t>(g.top_n), -1);
  return {order.begin(), order.end()};
}

void expect_defined_blocks(const AttentionCase& c, const Owned& importance, const Owned& blocks) {
  const std::int64_t columns = importance.size() / (c.tokens() * c.kv_heads);
  std::int64_t row = 0;
  for (const std::int64_t length : c.lengths) {
    for (std::int64_t t = 0; t < length; ++t) {
      for (std::int64_t head = 0; head < c.kv_heads; ++head, ++row) {
        std::vector<double> scores;
        for (std::int64_t j = 0; j < columns; ++j) {
          scores.push_back(importance.get(row * columns + j));
        }
        std::vector<double> found;
        for (std::int64_t slot = 0; slot < c.geometry.top_n; ++slot) {
          found.push_back(blocks.get(row * c.geometry.top_n + slot));
        }
        ASSERT_EQ(found, define_blocks(c, t, scores)) << "row " << row << ", position " << t;
      }
    }
  }
}

/// The compressed op with everything asked for.
struct Scored {
  AttentionData data;
  Owned importance;
};

Scored score(const AttentionCase& c, bool with_out = true, bool reuse = false,
             const Owned& given = {}) {
  Scored s{AttentionData(c, Kind::kCompressed),
           Owned(c.dtype, {c.tokens(), c.kv_heads, c.longest_blocks()})};
  s.importance.fill(777);
  if (reuse) s.data.blocks = given;
  ops().run(CompressedSelectForward{.out = with_out ? s.data.out.tensor() : Tensor{},
                                    .lse = s.data.lse,
                                    .blocks = s.data.blocks,
                                    .importance = reuse ? Tensor{} : s.importance.tensor(),
                                    .q = s.data.q,
                                    .k = s.data.k,
                                    .v = with_out ? s.data.v.tensor() : Tensor{},
                                    .reuse_blocks = reuse,
                                    .scale = c.scale(),
                                    .geometry = c.geometry,
                                    .documents = OwnedDocuments(c.lengths)});
  return s;
}

/// Equation 9 token by token: each compressed key gives a block its probability once for every
/// token they share, in units of the stride.
Owned define_importance(const AttentionCase& c, const AttentionData& d) {
  const KeyLists lists = key_lists(c, Kind::kCompressed, d.blocks);
  const NsaGeometry& g = c.geometry;
  const std::int64_t block = g.rate == 1 ? 1 : g.overlap * g.rate;
  Owned importance(DType::kF64, {c.tokens(), c.kv_heads, c.longest_blocks()});
  std::int64_t first = 0;
  std::int64_t token = 0;
  for (const std::int64_t length : c.lengths) {
    for (std::int64_t row = token * c.heads; row < (token + length) * c.heads; ++row) {
      const std::int64_t list = row / c.heads * c.kv_heads + row % c.heads / c.group();
      for (const std::int64_t key : lists[static_cast<std::size_t>(list)]) {
        double s = 0;
        for (std::int64_t i = 0; i < c.head_dim; ++i) {
          s += d.q.get(row * c.head_dim + i) *
               d.k.get((key * c.kv_heads + list % c.kv_heads) * c.head_dim + i);
        }
        const double p = std::exp(c.scale() * s - d.lse.get(row));
        for (std::int64_t j = 0; j < block; ++j) {
          const std::int64_t at =
              list * c.longest_blocks() + ((key - first) * g.rate + j) / g.select_block;
          importance.set(at, importance.get(at) + p / static_cast<double>(g.rate));
        }
      }
    }
    token += length;
    first += c.compressed(length);
  }
  return importance;
}

TEST(SelectBlocks, TakesForcedBlocksThenTheBest) {
  const AttentionCase c = small_blocks();
  const Owned importance =
      random_normal(DType::kF64, {c.tokens(), c.kv_heads, c.longest_blocks()}, 3);
  expect_defined_blocks(c, importance, select(c, importance));
}

TEST(SelectBlocks, ReadsImportanceInSinglePrecision) {
  const AttentionCase c = small_blocks();
  const Owned importance =
      random_normal(DType::kF32, {c.tokens(), c.kv_heads, c.longest_blocks() + 3}, 4);
  expect_defined_blocks(c, importance, select(c, importance));
}

TEST(SelectBlocks, BreaksTiesToTheLowerIndex) {
  const AttentionCase c = small_blocks();
  const Owned importance(DType::kF64, {c.tokens(), c.kv_heads, c.longest_blocks()});
  for (std::int64_t i = 0; i < importance.size(); ++i) {
    importance.set(i, static_cast<double>(i * 7 % 3));
  }
  expect_defined_blocks(c, importance, select(c, importance));
}

TEST(SelectBlocks, TakesTheLowestIndicesWhereAllImportancesAreZero) {
  AttentionCase c = small_blocks();
  c.lengths = {90};
  c.kv_heads = 1;
  const Owned blocks = select(c, Owned(DType::kF64, {90, 1, c.longest_blocks()}));
  const std::vector<double> all = blocks.values();
  const std::vector<double> last(all.end() - c.geometry.top_n, all.end());
  EXPECT_EQ(last, (std::vector<double>{0, 1, 2, 3, 21, 22}));
}

TEST(SelectBlocks, SortsMoreThanAHundredAndTwentyEightBlocks) {
  AttentionCase c = small_blocks();
  c.lengths = {1201};
  c.geometry.top_n = 16;
  const Owned importance =
      random_normal(DType::kF64, {c.tokens(), c.kv_heads, c.longest_blocks()}, 5);
  expect_defined_blocks(c, importance, select(c, importance));
}

TEST(SelectBlocks, TakesOnlyForcedBlocksWhereTopNLeavesNoMore) {
  AttentionCase c = small_blocks();
  c.geometry.top_n = 3;
  const Owned importance =
      random_normal(DType::kF64, {c.tokens(), c.kv_heads, c.longest_blocks()}, 6);
  expect_defined_blocks(c, importance, select(c, importance));
}

TEST(SelectBlocks, NeedsNoInitialBlock) {
  AttentionCase c = small_blocks();
  c.geometry.initial = 0;
  c.geometry.local = 1;
  const Owned importance =
      random_normal(DType::kF64, {c.tokens(), c.kv_heads, c.longest_blocks()}, 7);
  expect_defined_blocks(c, importance, select(c, importance));
}

class Importance : public testing::TestWithParam<AttentionCase> {};

TEST_P(Importance, IsTheOverlapOfCompressedKeysWithTheBlock) {
  const Scored s = score(GetParam());
  EXPECT_TRUE(near(s.importance, define_importance(GetParam(), s.data), 1e-12));
}

TEST_P(Importance, DecidesTheBlocks) {
  const Scored s = score(GetParam());
  EXPECT_TRUE(same(s.data.blocks, select(GetParam(), s.importance)));
}

TEST_P(Importance, NeedsNoValues) {
  const Scored s = score(GetParam(), false);
  const Scored with_out = score(GetParam());
  EXPECT_TRUE(same(s.data.blocks, with_out.data.blocks));
  EXPECT_TRUE(same(s.data.lse, with_out.data.lse));
}

TEST_P(Importance, OfGivenBlocksIsNotAskedFor) {
  const Scored first = score(GetParam());
  const Owned given(DType::kI32,
                    {GetParam().tokens(), GetParam().kv_heads, GetParam().geometry.top_n});
  for (std::int64_t i = 0; i < given.size(); ++i) given.set(i, static_cast<double>(i % 5));
  const std::vector<double> before = given.values();
  const Scored again = score(GetParam(), true, true, given);
  EXPECT_EQ(given.values(), before);
  EXPECT_TRUE(same(again.data.out, first.data.out));
  EXPECT_TRUE(same(again.data.lse, first.data.lse));
}

INSTANTIATE_TEST_SUITE_P(Shapes, Importance, testing::ValuesIn(hard_cases()),
                         [](const auto& shape) { return shape.param.name; });

TEST(Importance, OfEqualKeysIsEqualSoThatTheLowerBlockWins) {
  AttentionCase c = small_blocks();
  c.lengths = {96};
  c.geometry.overlap = 1;
  const Scored s{AttentionData(c, Kind::kCompressed),
                 Owned(c.dtype, {c.tokens(), c.kv_heads, c.longest_blocks()})};
  // Every compressed key is the same; sums of these products have no rounding.
  for (std::int64_t i = 0; i < s.data.k.size(); ++i) {
    s.data.k.set(i, static_cast<double>(i % (c.kv_heads * c.head_dim)) / 8 - 1);
  }
  for (std::int64_t i = 0; i < s.data.q.size(); ++i) {
    s.data.q.set(i, std::round(4 * s.data.q.get(i)) / 4);
  }
  ops().run(CompressedSelectForward{.out = {},
                                    .lse = s.data.lse,
                                    .blocks = s.data.blocks,
                                    .importance = {},
                                    .q = s.data.q,
                                    .k = s.data.k,
                                    .v = {},
                                    .scale = c.scale(),
                                    .geometry = c.geometry,
                                    .documents = OwnedDocuments(c.lengths)});
  const std::vector<double> all = s.data.blocks.values();
  const std::vector<double> last(all.end() - c.geometry.top_n, all.end());
  EXPECT_EQ(last, (std::vector<double>{0, 1, 2, 3, 22, 23}));
}

}  // namespace
}  // namespace nsa::test
