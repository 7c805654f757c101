#pragma once

// What the tests of the memory-bound ops share.

#include <initializer_list>

#include "core/philox.h"
#include "kernels/parity.h"

namespace nsa::test {

/// Ids in [0, below).
inline Owned whole_numbers(std::int64_t count, std::int64_t below, std::uint64_t seed) {
  Owned ids(DType::kI32, {count});
  for (std::int64_t i = 0; i < count; ++i) {
    const auto bits = philox(seed, 0, static_cast<std::uint64_t>(i))[0];
    ids.set(i, static_cast<double>(static_cast<std::int64_t>(bits) % below));
  }
  return ids;
}

/// Within what the type under test may be off by.
inline void expect_near(Parity& parity, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    EXPECT_TRUE(parity.near(name, tolerance(parity.dtype())));
  }
}

}  // namespace nsa::test
