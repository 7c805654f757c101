#include "train/flops.h"

#include <vector>

#include <gtest/gtest.h>

namespace nsa {
namespace {

// Counts, query by query, what the branches visit: the definition that the closed forms must meet.
struct Counted {
  std::int64_t compressed = 0;
  std::int64_t selected = 0;
  std::int64_t window = 0;
};

Counted count(std::int32_t tokens, const NsaGeometry& geometry) {
  Counted counted;
  for (std::int32_t t = 0; t < tokens; ++t) {
    counted.compressed += geometry.visible_blocks(t);
    counted.window += t - geometry.window_begin(t) + 1;
    const std::int32_t current = geometry.current_block(t);
    counted.selected += (geometry.blocks_taken(t) - 1) * geometry.select_block;
    counted.selected += t - current * geometry.select_block + 1;
  }
  return counted;
}

std::vector<NsaGeometry> geometries() {
  std::vector<NsaGeometry> all;
  for (const std::int32_t rate : {1, 2, 4, 8}) {
    for (const std::int32_t overlap : {1, 2}) {
      for (const std::int32_t top_n : {2, 3, 7}) {
        all.push_back({.rate = rate,
                       .overlap = overlap,
                       .select_block = 16,
                       .top_n = top_n,
                       .initial = 1,
                       .local = 1,
                       .window = 24});
      }
    }
  }
  return all;
}

TEST(Pairs, ClosedFormsMeetTheCountQueryByQuery) {
  for (const NsaGeometry& geometry : geometries()) {
    for (std::int32_t tokens = 0; tokens <= 200; ++tokens) {
      const Counted counted = count(tokens, geometry);
      ASSERT_EQ(pairs_compressed(tokens, geometry), counted.compressed) << tokens;
      ASSERT_EQ(pairs_selected(tokens, geometry), counted.selected) << tokens;
      ASSERT_EQ(pairs_window(tokens, geometry), counted.window) << tokens;
    }
  }
}

TEST(Pairs, RateOneIsDenseAttention) {
  const NsaGeometry geometry{.rate = 1};
  EXPECT_EQ(pairs_compressed(1000, geometry), pairs_full(1000));
}

TEST(Pairs, AverageKeysOfThePaperSettingsAreThoseOfTheSpecification) {
  const NsaGeometry paper{};
  const AttentionConfig all;
  // dense / NSA at 8k and 64k: 2.43 and 9.25.
  EXPECT_NEAR(1 / attention_density(8192, paper, all), 2.43, 0.01);
  EXPECT_NEAR(1 / attention_density(65536, paper, all), 9.25, 0.01);
}

TEST(Pairs, ABranchThatIsOffCostsNothingButTheScores) {
  const NsaGeometry geometry{};
  AttentionConfig selected_only;
  selected_only.compressed = false;
  selected_only.window_branch = false;
  const double expected =
      static_cast<double>(pairs_selected(4096, geometry) + pairs_compressed(4096, geometry)) /
      static_cast<double>(pairs_full(4096));
  EXPECT_DOUBLE_EQ(attention_density(4096, geometry, selected_only), expected);
}

}  // namespace
}  // namespace nsa
