#include "data/page_order.h"

#include <bit>

#include "core/error.h"
#include "core/philox.h"

namespace nsa {
namespace {

// Four rounds of a random function give a pseudo-random permutation (Luby and Rackoff, 1988); the
// other two are margin for domains of a few bits.
constexpr std::uint64_t kRounds = 6;
// Keeps the data order apart from the other streams of random numbers of one seed.
constexpr std::uint64_t kStream = 0x7061676573ULL;  // "pages"

}  // namespace

PageOrder::PageOrder(std::int64_t pages, std::uint64_t seed, bool shuffle)
    : pages_(pages), key_(seed ^ kStream), shuffle_(shuffle && pages > 1) {
  check(pages >= 1, "PageOrder: no pages");
  // The smallest even number of bits that holds every page: at most four times too many values.
  const auto bits = static_cast<unsigned>(std::bit_width(static_cast<std::uint64_t>(pages - 1)));
  half_bits_ = bits < 2 ? 1 : (bits + 1) / 2;
}

/// A Feistel network over 2 * half_bits_ bits.
std::uint64_t PageOrder::scramble(std::int64_t epoch, std::uint64_t value) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = value >> half_bits_;
  std::uint64_t right = value & mask;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    const std::uint64_t high = static_cast<std::uint64_t>(epoch) * kRounds + round;
    const auto random = philox(key_, high, right);
    const std::uint64_t mixed = left ^ ((random[0] | std::uint64_t{random[1]} << 32U) & mask);
    left = right;
    right = mixed;
  }
  return left << half_bits_ | right;
}

std::int64_t PageOrder::at(std::int64_t epoch, std::int64_t index) const {
  check(0 <= index && index < pages_ && epoch >= 0, "PageOrder: index out of range");
  if (!shuffle_) return index;
  // Cycle walking: the network permutes a larger domain; following it from a page until it comes
  // back among the pages permutes the pages (Black and Rogaway, 2002).
  auto value = static_cast<std::uint64_t>(index);
  do {
    value = scramble(epoch, value);
  } while (value >= static_cast<std::uint64_t>(pages_));
  return static_cast<std::int64_t>(value);
}

}  // namespace nsa
