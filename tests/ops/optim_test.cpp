#include "ops/optim.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "core/bf16.h"
#include "core/philox.h"
#include "ops/backend.h"
#include "support/near.h"

namespace nsa {
namespace {

using test::near;
using test::Owned;
using test::random_normal;
using test::same;

/// Large enough for several parts of work; ranges cross their bounds and leave gaps.
constexpr std::int64_t kCount = 100000;
const std::vector<AdamWRange> kRanges = {
    {.begin = 0, .end = 10, .updates = 1, .weight_decay = 0.1},
    {.begin = 10, .end = 10, .updates = 3, .weight_decay = 0.1},
    {.begin = 20, .end = 40000, .updates = 7, .weight_decay = 0.0},
    {.begin = 40000, .end = 99990, .updates = 200, .weight_decay = 0.3}};

struct State {
  Owned weights, master, m, v, grad, square_sum;
  explicit State(DType dtype)
      : weights(dtype, {kCount}),
        master(random_normal(dtype, {kCount}, 1)),
        m(random_normal(dtype, {kCount}, 2, 0.01)),
        v(random_normal(dtype, {kCount}, 3, 0.01)),
        grad(random_normal(dtype, {kCount}, 4)),
        square_sum(DType::kF64, {1}) {
    for (std::int64_t i = 0; i < kCount; ++i) v.set(i, std::abs(v.get(i)));
    square_sum.fill(100);
  }
  AdamW op() const {
    return {.weights = weights,
            .master = master,
            .m = m,
            .v = v,
            .grad = grad,
            .grad_square_sum = square_sum,
            .ranges = kRanges,
            .learning_rate = 0.02,
            .beta1 = 0.9,
            .beta2 = 0.999,
            .max_norm = 1.0,
            .grad_scale = 0.5};
  }
};

/// The update of the header's formula, one element at a time, in double.
void reference_update(const AdamW& op, const State& s) {
  const double norm = op.grad_scale * std::sqrt(s.square_sum.get(0));
  const double clip = op.max_norm > 0 && norm > op.max_norm ? op.max_norm / norm : 1.0;
  for (const AdamWRange& range : op.ranges) {
    const auto t = static_cast<double>(range.updates);
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      const double g = s.grad.get(i) * op.grad_scale * clip;
      const double m = op.beta1 * s.m.get(i) + (1 - op.beta1) * g;
      const double v = op.beta2 * s.v.get(i) + (1 - op.beta2) * g * g;
      const double m_hat = m / (1 - std::pow(op.beta1, t));
      const double v_hat = v / (1 - std::pow(op.beta2, t));
      const double p = s.master.get(i);
      s.m.set(i, m);
      s.v.set(i, v);
      s.master.set(
          i, p - op.learning_rate * (m_hat / (std::sqrt(v_hat) + op.eps) + range.weight_decay * p));
      s.weights.set(i, s.master.get(i));
    }
  }
}

void expect_update(DType dtype, double tolerance, double max_norm) {
  const Backend cpu = make_backend("cpu", 2);
  const State actual(dtype);
  const State wanted(dtype);
  AdamW op = actual.op();
  op.max_norm = max_norm;
  cpu.ops->run(op);
  reference_update(op, wanted);
  EXPECT_TRUE(near(actual.master, wanted.master, tolerance));
  EXPECT_TRUE(near(actual.m, wanted.m, tolerance));
  EXPECT_TRUE(near(actual.v, wanted.v, tolerance));
  EXPECT_TRUE(near(actual.weights, wanted.weights, tolerance));
}

TEST(AdamW, IsTheFormulaWithClipping) {
  expect_update(DType::kF64, 1e-14, 1.0);
  expect_update(DType::kF32, 5e-7, 1.0);
}

TEST(AdamW, IsTheFormulaWithoutClipping) {
  expect_update(DType::kF64, 1e-14, 0.0);
  expect_update(DType::kF32, 5e-7, 0.0);
}

TEST(AdamW, ANormUnderTheLimitIsNotScaled) {
  const Backend cpu = make_backend("cpu", 2);
  const State limited(DType::kF32);
  const State free(DType::kF32);
  AdamW op = limited.op();
  op.max_norm = 5.5;  // the norm is 5
  cpu.ops->run(op);
  op = free.op();
  op.max_norm = 0;
  cpu.ops->run(op);
  EXPECT_TRUE(same(limited.master, free.master));
}

TEST(AdamW, LeavesElementsOutsideTheRangesAlone) {
  const Backend cpu = make_backend("cpu", 2);
  const State s(DType::kF32);
  const State before(DType::kF32);
  cpu.ops->run(s.op());
  for (const std::int64_t i : {10, 15, 19, 99990, 99999}) {
    EXPECT_EQ(s.master.get(i), before.master.get(i));
    EXPECT_EQ(s.m.get(i), before.m.get(i));
    EXPECT_EQ(s.v.get(i), before.v.get(i));
    EXPECT_EQ(s.weights.get(i), 0);
  }
}

TEST(AdamW, DoesNothingWhenTheNormIsNotFinite) {
  const Backend cpu = make_backend("cpu", 2);
  for (const double sum :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    const State s(DType::kF32);
    const State before(DType::kF32);
    s.square_sum.fill(sum);
    cpu.ops->run(s.op());
    EXPECT_TRUE(same(s.weights, before.weights));
    EXPECT_TRUE(same(s.master, before.master));
    EXPECT_TRUE(same(s.m, before.m));
    EXPECT_TRUE(same(s.v, before.v));
  }
}

TEST(AdamW, WeightsMayBeTheMasterItself) {
  const Backend cpu = make_backend("cpu", 2);
  const State apart(DType::kF32);
  const State one(DType::kF32);
  cpu.ops->run(apart.op());
  AdamW op = one.op();
  op.weights = one.master;
  cpu.ops->run(op);
  EXPECT_TRUE(same(one.master, apart.master));
}

TEST(AdamW, ResultsDoNotDependOnThreads) {
  const Backend one = make_backend("cpu", 1);
  const Backend three = make_backend("cpu", 3);
  const State a(DType::kF32);
  const State b(DType::kF32);
  one.ops->run(a.op());
  three.ops->run(b.op());
  EXPECT_TRUE(same(a.master, b.master));
  EXPECT_TRUE(same(a.v, b.v));
}

TEST(AdamW, AnElementsUpdateDoesNotDependOnWhereItStands) {
  // Parameters may be cut into ranges and shards in any way: vector code and the loop's tail must
  // round alike.
  const Backend cpu = make_backend("cpu", 2);
  const State whole(DType::kF32);
  const State cut(DType::kF32);
  const AdamWRange all = {.begin = 0, .end = 100, .updates = 5, .weight_decay = 0.1};
  AdamW op = whole.op();
  op.ranges = {&all, 1};
  cpu.ops->run(op);
  op = cut.op();
  for (std::int64_t i = 0; i < 100; ++i) {
    const AdamWRange single = {.begin = i, .end = i + 1, .updates = 5, .weight_decay = 0.1};
    op.ranges = {&single, 1};
    cpu.ops->run(op);
  }
  EXPECT_TRUE(same(cut.master, whole.master));
}

/// The state with moments in bf16, and the one in fp32 with the same numbers.
struct Rounded {
  State bf16{DType::kF32}, fp32{DType::kF32};
  Rounded() {
    for (Owned State::*moment : {&State::m, &State::v}) {
      const Owned wide = fp32.*moment;
      bf16.*moment = Owned(DType::kBF16, {kCount});
      for (std::int64_t i = 0; i < kCount; ++i) {
        (bf16.*moment).set(i, wide.get(i));
        wide.set(i, (bf16.*moment).get(i));
      }
    }
  }
};

TEST(AdamW, MomentsInBf16AreThoseOfFp32RoundedByTheirElementsBits) {
  const Backend cpu = make_backend("cpu", 2);
  const Rounded s;
  AdamW op = s.bf16.op();
  op.rounding_key = 42;
  cpu.ops->run(op);
  cpu.ops->run(s.fp32.op());
  EXPECT_TRUE(same(s.bf16.master, s.fp32.master));
  for (const AdamWRange& range : kRanges) {
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      const auto random = philox(42, 0, static_cast<std::uint64_t>(i / 4));
      const std::uint32_t word = random[static_cast<std::size_t>(i % 4)];
      const auto m = static_cast<float>(s.fp32.m.get(i));
      const auto v = static_cast<float>(s.fp32.v.get(i));
      ASSERT_EQ(s.bf16.m.get(i), from_bf16(to_bf16_at_random(m, word & 0xFFFFU))) << i;
      ASSERT_EQ(s.bf16.v.get(i), from_bf16(to_bf16_at_random(v, word >> 16U))) << i;
    }
  }
  EXPECT_EQ(s.bf16.m.get(15), s.fp32.m.get(15));  // outside all ranges
}

TEST(AdamW, MomentsInBf16DoNotDependOnThreadsOrRanges) {
  const Backend one = make_backend("cpu", 1);
  const Backend three = make_backend("cpu", 3);
  const Rounded whole;
  const Rounded cut;
  const AdamWRange all = {.begin = 1, .end = 5003, .updates = 5, .weight_decay = 0.1};
  AdamW op = whole.bf16.op();
  op.ranges = {&all, 1};
  three.ops->run(op);
  op = cut.bf16.op();
  std::vector<AdamWRange> pieces;
  for (std::int64_t i = all.begin; i < all.end; i += 7) {
    pieces.push_back({.begin = i,
                      .end = std::min(i + 7, all.end),
                      .updates = all.updates,
                      .weight_decay = all.weight_decay});
  }
  op.ranges = pieces;
  one.ops->run(op);
  EXPECT_TRUE(same(cut.bf16.m, whole.bf16.m));
  EXPECT_TRUE(same(cut.bf16.v, whole.bf16.v));
  EXPECT_TRUE(same(cut.bf16.master, whole.bf16.master));
}

TEST(AdamW, AnotherKeyRoundsInAnotherWay) {
  const Backend cpu = make_backend("cpu", 2);
  const Rounded a;
  const Rounded b;
  AdamW op = a.bf16.op();
  cpu.ops->run(op);
  op = b.bf16.op();
  op.rounding_key = 1;
  cpu.ops->run(op);
  EXPECT_FALSE(same(a.bf16.m, b.bf16.m));
  EXPECT_TRUE(same(a.bf16.master, b.bf16.master));
}

/// A change of v below half a step of bf16 is lost for good when it is rounded to the nearest.
TEST(AdamW, SmallChangesOfMomentsInBf16AddUp) {
  const Backend cpu = make_backend("cpu", 2);
  const Rounded s;
  s.bf16.v.fill(1.0);
  s.bf16.grad.fill(std::sqrt(2.0));
  const AdamWRange all = {.begin = 0, .end = kCount, .updates = 1, .weight_decay = 0};
  AdamW op = s.bf16.op();
  op.ranges = {&all, 1};
  op.grad_scale = 1;
  op.max_norm = 0;
  constexpr int kUpdates = 100;
  for (int update = 0; update < kUpdates; ++update) {
    op.rounding_key = static_cast<std::uint64_t>(update);
    cpu.ops->run(op);
  }
  double mean = 0;
  for (std::int64_t i = 0; i < kCount; ++i) mean += s.bf16.v.get(i) / kCount;
  EXPECT_NEAR(mean, 2.0 - std::pow(0.999, kUpdates), 1e-4);
}

TEST(AdamW, CheckRefusesRangesThatOverlapOrLeaveTheTensors) {
  const Backend cpu = make_backend("cpu", 1);
  const State s(DType::kF32);
  AdamW op = s.op();
  std::vector<AdamWRange> ranges = {{.begin = 0, .end = 10}, {.begin = 9, .end = 12}};
  op.ranges = ranges;
  EXPECT_THROW(cpu.ops->run(op), Error);
  ranges = {{.begin = 0, .end = kCount + 1}};
  op.ranges = ranges;
  EXPECT_THROW(cpu.ops->run(op), Error);
  ranges = {{.begin = 0, .end = 1, .updates = 0}};
  op.ranges = ranges;
  EXPECT_THROW(cpu.ops->run(op), Error);
}

TEST(AdamW, CheckRefusesWrongTypes) {
  const Backend cpu = make_backend("cpu", 1);
  const State s(DType::kF32);
  AdamW op = s.op();
  op.grad_square_sum = s.m;
  EXPECT_THROW(cpu.ops->run(op), Error);
  op = s.op();
  op.v = Owned(DType::kF64, {kCount});
  EXPECT_THROW(cpu.ops->run(op), Error);
}

TEST(SumSquares, AddsTheSumInDouble) {
  const Backend cpu = make_backend("cpu", 2);
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const Owned x = random_normal(dtype, {kCount}, 1);
    const Owned sum(DType::kF64, {1});
    sum.fill(3);
    double wanted = 3;
    for (std::int64_t i = 0; i < kCount; ++i) wanted += x.get(i) * x.get(i);
    cpu.ops->run(SumSquares{.sum = sum, .x = x});
    EXPECT_NEAR(sum.get(0), wanted, 1e-12 * wanted);
  }
}

TEST(SumSquares, DoesNotDependOnThreads) {
  const Backend one = make_backend("cpu", 1);
  const Backend three = make_backend("cpu", 3);
  const Owned x = random_normal(DType::kF32, {kCount}, 1);
  const Owned a(DType::kF64, {1});
  const Owned b(DType::kF64, {1});
  one.ops->run(SumSquares{.sum = a, .x = x});
  three.ops->run(SumSquares{.sum = b, .x = x});
  EXPECT_EQ(a.get(0), b.get(0));
}

TEST(SumSquares, NothingAddsNothing) {
  const Backend cpu = make_backend("cpu", 1);
  const Owned sum(DType::kF64, {1});
  cpu.ops->run(SumSquares{.sum = sum, .x = Owned(DType::kF32, {0})});
  EXPECT_EQ(sum.get(0), 0);
}

TEST(SumSquares, ShowsWhatIsNotFinite) {
  const Backend cpu = make_backend("cpu", 1);
  const Owned x(DType::kF32, {100});
  x.set(57, std::numeric_limits<double>::quiet_NaN());
  const Owned sum(DType::kF64, {1});
  cpu.ops->run(SumSquares{.sum = sum, .x = x});
  EXPECT_TRUE(std::isnan(sum.get(0)));
}

}  // namespace
}  // namespace nsa
