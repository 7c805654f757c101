#include <cmath>

#include "kernels/parity.h"
#include "ops/nsa_attention.h"

namespace nsa {
namespace {

using test::Kind;
using test::Owned;
using test::Parity;

class SelectBlocksKernel : public test::KernelTest {};
INSTANTIATE_TEST_SUITE_P(Types, SelectBlocksKernel, ::testing::Values(DType::kF32),
                         test::type_name);

/// Random importances, in `levels` steps where that is above 0.
Owned importances(std::int64_t tokens, std::int64_t heads, std::int64_t columns, int levels) {
  Owned values = test::random_normal(DType::kF32, {tokens, heads, columns}, 3);
  for (std::int64_t i = 0; i < values.size(); ++i) {
    const double value = std::abs(values.get(i));
    values.set(i, levels > 0 ? std::floor(value * levels) / levels : value);
  }
  return values;
}

/// The same blocks as the CPU's.
::testing::AssertionResult same_blocks(DType dtype, const std::vector<std::int64_t>& lengths,
                                       const NsaGeometry& geometry, int levels) {
  Parity parity(dtype);
  std::int64_t tokens = 0;
  std::int64_t longest = 0;
  for (const std::int64_t length : lengths) {
    tokens += length;
    longest = std::max(longest, length);
  }
  const std::int64_t columns = geometry.selection_blocks(static_cast<std::int32_t>(longest)) + 2;
  parity.input("importance", importances(tokens, 2, columns, levels), Kind::kStat);
  parity.output("blocks", {tokens, 2, geometry.top_n}, Kind::kInteger);
  parity.run(lengths, [&](Ops& ops, const auto& at, const Documents& documents) {
    ops.run(SelectBlocks{.blocks = at("blocks"),
                         .importance = at("importance"),
                         .geometry = geometry,
                         .documents = documents});
  });
  return parity.same("blocks");
}

TEST_P(SelectBlocksKernel, ChoosesAsTheCpuDoes) {
  EXPECT_TRUE(same_blocks(GetParam(), {900, 1, 0, 333, 64}, {.rate = 4, .select_block = 16}, 0));
}

TEST_P(SelectBlocksKernel, GivesTiesToTheLowerIndex) {
  for (const int levels : {1, 2, 8}) {
    EXPECT_TRUE(
        same_blocks(GetParam(), {900, 130}, {.rate = 4, .select_block = 16, .top_n = 9}, levels));
  }
}

TEST_P(SelectBlocksKernel, TakesAnyNumberOfBlocksAndSlots) {
  for (const std::int32_t top_n : {2, 33, 500}) {
    for (const std::int64_t length : {250, 700, 1300}) {
      EXPECT_TRUE(
          same_blocks(GetParam(), {length},
                      {.rate = 1, .select_block = 1, .top_n = top_n, .initial = 1, .local = 1}, 4));
    }
  }
}

TEST_P(SelectBlocksKernel, TakesForcedBlocksFirst) {
  EXPECT_TRUE(same_blocks(
      GetParam(), {400}, {.rate = 4, .select_block = 16, .top_n = 9, .initial = 4, .local = 5}, 0));
  EXPECT_TRUE(same_blocks(
      GetParam(), {400}, {.rate = 4, .select_block = 16, .top_n = 6, .initial = 0, .local = 1}, 0));
}

}  // namespace
}  // namespace nsa
