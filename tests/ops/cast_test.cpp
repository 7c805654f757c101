#include "ops/cast.h"

#include <gtest/gtest.h>

#include "ops/backend.h"
#include "support/errors.h"
#include "support/owned.h"

namespace nsa {
namespace {

using test::Owned;
using test::random_normal;

TEST(Cast, RoundsToTheNarrowerType) {
  Backend backend = make_backend("cpu", 2);
  const Owned wide = random_normal(DType::kF64, {1000}, 1);
  const Owned narrow(DType::kF32, {1000});
  backend.ops->run(Cast{.out = narrow, .in = wide});
  for (std::int64_t i = 0; i < wide.size(); ++i) {
    EXPECT_EQ(narrow.get(i), static_cast<double>(static_cast<float>(wide.get(i))));
  }
}

TEST(Cast, RefusesAnotherNumberOfElements) {
  const Owned wide = random_normal(DType::kF64, {10}, 1);
  const Owned narrow(DType::kF32, {9});
  EXPECT_THROW((Cast{.out = narrow, .in = wide}.check()), Error);
}

}  // namespace
}  // namespace nsa
