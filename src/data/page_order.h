#pragma once

// PageOrder: a permutation of the pages for every (seed, epoch), computed on demand.

#include <cstdint>

namespace nsa {

/// No state: page `index` of an epoch is a function of (seed, epoch, index), so a run can go on
/// anywhere and any number of ranks sees the same order.
class PageOrder {
 public:
  PageOrder() = default;
  /// `pages` >= 1. Without `shuffle` the order is that of the file.
  PageOrder(std::int64_t pages, std::uint64_t seed, bool shuffle);

  /// The page that is read `index`-th in `epoch`; a bijection of [0, pages).
  std::int64_t at(std::int64_t epoch, std::int64_t index) const;

 private:
  std::uint64_t scramble(std::int64_t epoch, std::uint64_t value) const;

  std::int64_t pages_ = 1;
  std::uint64_t key_ = 0;
  bool shuffle_ = false;
  unsigned half_bits_ = 1;
};

}  // namespace nsa
