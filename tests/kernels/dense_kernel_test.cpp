// The memory-bound ops.

#include <array>

#include "kernels/dense_case.h"
#include "ops/cast.h"
#include "ops/gate.h"
#include "ops/loss.h"
#include "ops/optim.h"
#include "ops/swiglu.h"

namespace nsa {
namespace {

using test::expect_near;
using test::Kind;
using test::Owned;
using test::Parity;
using test::random_normal;
using test::whole_numbers;

class DenseKernel : public test::KernelTest {};
INSTANTIATE_TEST_SUITE_P(Types, DenseKernel, ::testing::Values(DType::kF32, DType::kBF16),
                         test::type_name);

/// `in_place`: the gradient takes the place of its operand.
void compare_swiglus(DType dtype, std::int64_t rows, std::int64_t ffn, bool in_place,
                     double spread = 2.0) {
  SCOPED_TRACE(::testing::Message() << rows << " rows of " << ffn);
  Parity parity(dtype);
  parity.input("gate_up", random_normal(DType::kF32, {rows, 2 * ffn}, 1, spread));
  parity.input("dy", random_normal(DType::kF32, {rows, ffn}, 2));
  parity.output("y", {rows, ffn});
  parity.output("dgate_up", {rows, 2 * ffn});
  const char* gradient = in_place ? "gate_up" : "dgate_up";
  parity.run({rows}, [&](Ops& ops, const auto& at, const Documents& /*documents*/) {
    ops.run(SwiGluForward{.y = at("y"), .gate_up = at("gate_up")});
    ops.run(SwiGluBackward{.dgate_up = at(gradient), .dy = at("dy"), .gate_up = at("gate_up")});
  });
  expect_near(parity, {"y", gradient});
}

TEST_P(DenseKernel, MultipliesGateAndUp) {
  compare_swiglus(GetParam(), 19, 344, true);
  compare_swiglus(GetParam(), 19, 2816, false);
  compare_swiglus(GetParam(), 19, 37, true);
  compare_swiglus(GetParam(), 1, 1, false);
  compare_swiglus(GetParam(), 0, 64, true);
}

// exp(-gate) is infinite from -89 on.
TEST_P(DenseKernel, GatesFarFromZeroAreOpenOrShut) {
  compare_swiglus(GetParam(), 19, 344, false, 100.0);
}

void compare_losses(DType dtype, std::int64_t rows, std::int64_t vocabulary, bool gradients) {
  SCOPED_TRACE(::testing::Message() << rows << " rows over " << vocabulary);
  Parity parity(dtype);
  constexpr std::int64_t kDim = 64;
  Owned targets = whole_numbers(rows, vocabulary, 5);
  for (std::int64_t row = 0; row < rows; row += 7) targets.set(row, kIgnoredTarget);
  parity.input("x", random_normal(DType::kF32, {rows, kDim}, 1));
  parity.input("weight", random_normal(DType::kF32, {vocabulary, kDim}, 2, 0.3));
  parity.input("targets", targets, Kind::kInteger);
  parity.output("logits", {std::min<std::int64_t>(rows, 48), vocabulary});
  parity.input("loss", random_normal(DType::kF64, {2}, 3), Kind::kDouble);
  parity.output("token_loss", {rows}, Kind::kStat);
  parity.output("dx", {rows, kDim});
  parity.input("dweight", random_normal(DType::kF32, {vocabulary, kDim}, 4, 0.1), Kind::kStat);
  parity.run({rows}, [&](Ops& ops, const auto& at, const Documents& /*documents*/) {
    LinearCrossEntropy op;
    op.loss = at("loss");
    op.token_loss = at("token_loss");
    op.dx = at(gradients ? "dx" : "");
    op.dweight = at(gradients ? "dweight" : "");
    op.x = at("x");
    op.weight = at("weight");
    op.targets = at("targets");
    op.logits = at("logits");
    op.z_loss = 1e-3;
    op.grad_scale = 0.5;
    ops.run(op);
  });
  expect_near(parity, {"loss", "token_loss"});
  if (gradients) expect_near(parity, {"dx", "dweight"});
}

// The loss of rows without a target is 0 and their gradient too, whatever they were before.
TEST_P(DenseKernel, RowsWithoutTargetsLoseNothing) {
  Parity parity(GetParam());
  Owned targets(DType::kI32, {9});
  targets.fill(kIgnoredTarget);
  parity.input("x", random_normal(DType::kF32, {9, 8}, 1));
  parity.input("weight", random_normal(DType::kF32, {24, 8}, 2));
  parity.input("targets", targets, Kind::kInteger);
  parity.output("logits", {4, 24});
  parity.input("loss", Owned(DType::kF64, {2}), Kind::kDouble);
  parity.output("dx", {9, 8});
  parity.input("dweight", Owned(DType::kF32, {24, 8}), Kind::kStat);
  parity.run({9}, [](Ops& ops, const auto& at, const Documents& /*documents*/) {
    LinearCrossEntropy op;
    op.loss = at("loss");
    op.dx = at("dx");
    op.dweight = at("dweight");
    op.x = at("x");
    op.weight = at("weight");
    op.targets = at("targets");
    op.logits = at("logits");
    ops.run(op);
  });
  for (const char* name : {"loss", "dx", "dweight"}) EXPECT_TRUE(parity.same(name));
}

TEST_P(DenseKernel, LosesAsTheCpuDoes) {
  compare_losses(GetParam(), 100, 2048, true);
  compare_losses(GetParam(), 100, 1000, false);
  compare_losses(GetParam(), 1, 77, true);
}

void compare_gates(DType dtype, std::int64_t heads, std::int64_t dim, bool selected) {
  SCOPED_TRACE(::testing::Message() << heads << " heads of " << dim);
  Parity parity(dtype);
  constexpr std::int64_t kTokens = 530;
  const auto tensor = [&](const char* name, std::uint64_t seed) {
    parity.input(name, random_normal(DType::kF32, {kTokens, heads, dim}, seed));
  };
  tensor("c", 1);
  tensor("s", 2);
  tensor("w", 3);
  tensor("dout", 4);
  parity.input("logits", random_normal(DType::kF32, {kTokens, heads, 3}, 5));
  parity.input("bias", random_normal(DType::kF32, {3 * heads}, 6));
  parity.output("out", {kTokens, heads, dim});
  parity.output("gates", {kTokens, heads, 3}, Kind::kStat);
  parity.output("dlogits", {kTokens, heads, 3});
  parity.output("deltas", {kTokens, heads, 3}, Kind::kStat);
  parity.input("dbias", random_normal(DType::kF32, {3 * heads}, 7), Kind::kStat);
  parity.run({kTokens}, [&](Ops& ops, const auto& at, const Documents& /*documents*/) {
    const std::array<Tensor, 3> branches = {at("c"), at(selected ? "s" : ""), at("w")};
    ops.run(GateCombineForward{.out = at("out"),
                               .gates = at("gates"),
                               .branches = branches,
                               .logits = at("logits"),
                               .bias = at("bias")});
    ops.run(GateBackward{.dlogits = at("dlogits"),
                         .dbias = at("dbias"),
                         .deltas = at("deltas"),
                         .dout = at("dout"),
                         .branches = branches,
                         .gates = at("gates")});
  });
  expect_near(parity, {"out", "dlogits"});
  for (const char* name : {"gates", "deltas", "dbias"}) EXPECT_TRUE(parity.near(name, 1e-5));
}

TEST_P(DenseKernel, TwoRunsGiveTheSameBiasGradients) {
  Parity parity(GetParam());
  parity.input("dout", random_normal(DType::kF32, {1300, 4, 64}, 1));
  parity.input("branch", random_normal(DType::kF32, {1300, 4, 64}, 2));
  parity.input("gates", random_normal(DType::kF32, {1300, 4, 3}, 3), Kind::kStat);
  parity.output("dlogits", {1300, 4, 3});
  parity.output("deltas", {1300, 4, 3}, Kind::kStat);
  for (const char* name : {"first", "second"}) {
    parity.input(name, Owned(DType::kF32, {12}), Kind::kStat);
    parity.run({1300}, [&](Ops& ops, const auto& at, const Documents& /*documents*/) {
      ops.run(GateBackward{.dlogits = at("dlogits"),
                           .dbias = at(name),
                           .deltas = at("deltas"),
                           .dout = at("dout"),
                           .branches = {at("branch"), at("branch"), at("branch")},
                           .gates = at("gates")});
    });
  }
  EXPECT_TRUE(test::same(parity.fetch("first"), parity.fetch("second")));
}

TEST_P(DenseKernel, GatesMixTheBranches) {
  compare_gates(GetParam(), 16, 64, true);
  compare_gates(GetParam(), 3, 128, false);
  compare_gates(GetParam(), 5, 36, true);
  compare_gates(GetParam(), 2, 7, true);
}

TEST_P(DenseKernel, CastsMasterWeightsAndBack) {
  for (const std::int64_t count : {1003, 4096, 7, 1}) {
    Parity parity(GetParam());
    parity.input("in", random_normal(DType::kF32, {count}, 1), Kind::kStat);
    parity.output("out", {count});
    parity.output("back", {count}, Kind::kStat);
    parity.run({1}, [](Ops& ops, const auto& at, const Documents& /*documents*/) {
      ops.run(Cast{.out = at("out"), .in = at("in")});
      ops.run(Cast{.out = at("back"), .in = at("out")});
    });
    const Owned rounded(DType::kF32, {count});
    for (std::int64_t i = 0; i < count; ++i) {
      const double exact = parity.expected("in").get(i);
      rounded.set(
          i, GetParam() == DType::kBF16 ? from_bf16(to_bf16(static_cast<float>(exact))) : exact);
    }
    EXPECT_TRUE(test::same(parity.fetch("out"), rounded));
    EXPECT_TRUE(test::same(parity.fetch("back"), parity.fetch("out")));
  }
}

// A tensor that starts between two packs of 16 bytes.
TEST_P(DenseKernel, TakesTensorsThatStartAnywhere) {
  Parity parity(GetParam());
  parity.input("in", random_normal(DType::kF32, {1003}, 1), Kind::kStat);
  parity.output("out", {1003});
  parity.input("sum", Owned(DType::kF64, {1}), Kind::kDouble);
  parity.run({1}, [](Ops& ops, const auto& at, const Documents& /*documents*/) {
    ops.run(Cast{.out = at("out"), .in = at("in")});
    ops.run(Cast{.out = at("out").slice(1, 1003), .in = at("in").slice(0, 1002)});
    ops.run(SumSquares{.sum = at("sum"), .x = at("in").slice(3, 1003)});
  });
  expect_near(parity, {"out"});
  EXPECT_TRUE(parity.near("sum", 1e-12));
}

void compare_updates(DType dtype, double max_norm, bool finite) {
  Parity parity(dtype);
  constexpr std::int64_t kCount = 40000;
  parity.input("master", random_normal(DType::kF32, {kCount}, 1), Kind::kStat);
  parity.input("m", random_normal(DType::kF32, {kCount}, 2, 0.1), Kind::kStat);
  Owned v = random_normal(DType::kF32, {kCount}, 3, 0.1);
  for (std::int64_t i = 0; i < kCount; ++i) v.set(i, v.get(i) * v.get(i));
  parity.input("v", v, Kind::kStat);
  Owned grad = random_normal(DType::kF32, {kCount}, 4);
  if (!finite) grad.set(77, std::numeric_limits<double>::infinity());
  parity.input("grad", grad, Kind::kStat);
  parity.input("weights", random_normal(DType::kF32, {kCount}, 1));
  parity.input("sum", Owned(DType::kF64, {1}), Kind::kDouble);
  const std::array<AdamWRange, 3> ranges = {
      {{.begin = 0, .end = 20001, .updates = 1},
       {.begin = 20001, .end = 20011, .updates = 7},
       {.begin = 20032, .end = 39999, .updates = 3, .weight_decay = 0.1}}};
  parity.run({1}, [&](Ops& ops, const auto& at, const Documents& /*documents*/) {
    ops.run(SumSquares{.sum = at("sum"), .x = at("grad")});
    AdamW op;
    op.weights = at("weights");
    op.master = at("master");
    op.m = at("m");
    op.v = at("v");
    op.grad = at("grad");
    op.grad_square_sum = at("sum");
    op.ranges = ranges;
    op.learning_rate = 0.01;
    op.max_norm = max_norm;
    op.grad_scale = 0.25;
    ops.run(op);
  });
  for (const char* name : {"master", "m", "v"}) EXPECT_TRUE(parity.near(name, 2e-6));
  expect_near(parity, {"weights"});
  if (finite) {
    EXPECT_TRUE(parity.near("sum", 1e-12));
  }
}

TEST_P(DenseKernel, UpdatesAsTheCpuDoes) {
  compare_updates(GetParam(), 0, true);
  compare_updates(GetParam(), 1.0, true);
}

/// One AdamW on a device, with moments in bf16 and in pinned host memory or the device's own; its
/// master, m and v afterwards.
std::vector<std::vector<char>> updated(Backend& backend, bool on_host) {
  constexpr std::int64_t kCount = 40003;
  const auto moment = [](double std, std::uint64_t seed) {
    Owned made = random_normal(DType::kBF16, {kCount}, seed, std);
    for (std::int64_t i = 0; i < kCount; ++i) made.set(i, std::abs(made.get(i)));
    return made;
  };
  std::vector<Owned> values = {random_normal(DType::kF32, {kCount}, 1), moment(0.1, 2),
                               moment(0.01, 3), random_normal(DType::kF32, {kCount}, 4)};
  Owned sum(DType::kF64, {1});
  sum.fill(40000);
  values.push_back(sum);
  std::vector<Buffer> memory;
  std::vector<Tensor> on_device;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Tensor& from = values[i];
    memory.emplace_back(i < 3 && on_host ? backend.device->host_memory() : *backend.device,
                        from.bytes());
    backend.device->copy_from_host(memory.back().data(), from.data(), from.bytes());
    on_device.push_back(memory.back().view(from.dtype(), {from.size()}));
  }
  const std::array<AdamWRange, 2> ranges = {
      {{.begin = 0, .end = 20001, .updates = 1},
       {.begin = 20001, .end = kCount, .updates = 7, .weight_decay = 0.1}}};
  AdamW op;
  op.weights = op.master = on_device[0];
  op.m = on_device[1];
  op.v = on_device[2];
  op.grad = on_device[3];
  op.grad_square_sum = on_device[4];
  op.ranges = ranges;
  op.learning_rate = 0.01;
  op.max_norm = 1;
  op.rounding_key = 0x123456789ABCDEFULL;
  backend.ops->run(op);
  std::vector<std::vector<char>> results;
  for (std::size_t i = 0; i < 3; ++i) {
    results.emplace_back(static_cast<std::size_t>(on_device[i].bytes()));
    backend.device->copy_to_host(results.back().data(), on_device[i].data(), on_device[i].bytes());
  }
  return results;
}

TEST(AdamWKernel, MomentsInBf16HaveTheBitsOfTheCpu) {
  if (!cuda_available()) GTEST_SKIP() << "no GPU";
  Backend cpu = make_backend("cpu", 2);
  Backend gpu = make_backend("cuda");
  const auto wanted = updated(cpu, false);
  EXPECT_EQ(updated(gpu, false), wanted);
  EXPECT_EQ(updated(gpu, true), wanted);
}

TEST_P(DenseKernel, UpdatesNothingWhereTheNormIsNotFinite) {
  compare_updates(GetParam(), 1.0, false);
}

}  // namespace
}  // namespace nsa
