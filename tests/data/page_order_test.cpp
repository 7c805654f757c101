#include "data/page_order.h"

#include <algorithm>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace nsa::test {
namespace {

std::vector<std::int64_t> order_of(const PageOrder& order, std::int64_t pages, std::int64_t epoch) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < pages; ++i) all.push_back(order.at(epoch, i));
  return all;
}

TEST(PageOrder, EveryEpochIsAPermutation) {
  for (const std::int64_t pages : {1, 2, 3, 4, 5, 7, 16, 17, 100, 1000, 4097}) {
    const PageOrder order(pages, 1337, true);
    for (const std::int64_t epoch : {0, 1, 2, 1000}) {
      const auto all = order_of(order, pages, epoch);
      const std::set<std::int64_t> distinct(all.begin(), all.end());
      ASSERT_EQ(static_cast<std::int64_t>(distinct.size()), pages) << pages << " " << epoch;
      ASSERT_EQ(*distinct.begin(), 0);
      ASSERT_EQ(*distinct.rbegin(), pages - 1);
    }
  }
}

TEST(PageOrder, EpochsDiffer) {
  const PageOrder order(1000, 1, true);
  const auto first = order_of(order, 1000, 0);
  const auto second = order_of(order, 1000, 1);
  std::int64_t same = 0;
  for (std::size_t i = 0; i < first.size(); ++i) same += first[i] == second[i] ? 1 : 0;
  EXPECT_LT(same, 10);  // about one in a thousand by chance
}

TEST(PageOrder, SeedsDiffer) {
  EXPECT_NE(order_of(PageOrder(100, 1, true), 100, 0), order_of(PageOrder(100, 2, true), 100, 0));
}

TEST(PageOrder, TheFirstPageIsSpreadOverAllPages) {
  std::vector<int> hits(8);
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    ++hits[static_cast<std::size_t>(PageOrder(8, seed, true).at(0, 0))];
  }
  // 500 expected, standard deviation 21.
  EXPECT_GT(*std::min_element(hits.begin(), hits.end()), 400);
  EXPECT_LT(*std::max_element(hits.begin(), hits.end()), 600);
}

TEST(PageOrder, WithoutShuffleIsTheOrderOfTheFile) {
  const PageOrder order(10, 1, false);
  for (std::int64_t i = 0; i < 10; ++i) EXPECT_EQ(order.at(3, i), i);
}

TEST(PageOrder, HoldsForMorePagesThanMemory) {
  const std::int64_t pages = std::int64_t{1} << 45;
  const PageOrder order(pages + 3, 5, true);
  EXPECT_NE(order.at(0, 0), order.at(0, pages));
  EXPECT_LT(order.at(2, pages + 2), pages + 3);
}

}  // namespace
}  // namespace nsa::test
