// The memory-bound ops.

#include <array>

#include "kernels/parity.h"
#include "ops/cast.h"
#include "ops/embedding.h"
#include "ops/gate.h"
#include "ops/loss.h"
#include "ops/norm.h"
#include "ops/optim.h"
#include "ops/swiglu.h"

namespace nsa {
namespace {

using test::Kind;
using test::Owned;
using test::Parity;
using test::random_normal;

class DenseKernel : public test::KernelTest {};
INSTANTIATE_TEST_SUITE_P(Types, DenseKernel, ::testing::Values(DType::kF32, DType::kBF16),
                         test::type_name);

Owned whole_numbers(std::int64_t count, std::int64_t below, std::uint64_t seed) {
  Owned ids(DType::kI32, {count});
  for (std::int64_t i = 0; i < count; ++i) {
    const auto bits = philox(seed, 0, static_cast<std::uint64_t>(i))[0];
    ids.set(i, static_cast<double>(static_cast<std::int64_t>(bits) % below));
  }
  return ids;
}

void expect_near(Parity& parity, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    EXPECT_TRUE(parity.near(name, test::tolerance(parity.dtype())));
  }
}

void compare_norms(DType dtype, std::int64_t rows, std::int64_t dim, bool delta, bool accumulate) {
  SCOPED_TRACE(::testing::Message() << rows << " rows of " << dim);
  Parity parity(dtype);
  parity.input("residual", random_normal(DType::kF32, {rows, dim}, 1));
  parity.input("delta", random_normal(DType::kF32, {rows, dim}, 2));
  parity.input("weight", random_normal(DType::kF32, {dim}, 3));
  parity.output("y", {rows, dim});
  parity.output("rstd", {rows}, Kind::kStat);
  parity.output("sum", {rows, dim});
  parity.input("dy", random_normal(DType::kF32, {rows, dim}, 4));
  parity.input("dresidual", random_normal(DType::kF32, {rows, dim}, 5));
  parity.input("dweight", random_normal(DType::kF32, {dim}, 6), Kind::kStat);
  parity.run({rows}, [&](Ops& ops, const auto& at, const Documents& /*documents*/) {
    ops.run(ResidualNormForward{.y = at("y"),
                                .rstd = at("rstd"),
                                .residual_out = at(delta ? "sum" : ""),
                                .residual = at("residual"),
                                .delta = at(delta ? "delta" : ""),
                                .weight = at("weight")});
    ops.run(ResidualNormBackward{.dresidual = at("dresidual"),
                                 .dweight = at("dweight"),
                                 .dy = at("dy"),
                                 .residual = at(delta ? "sum" : "residual"),
                                 .rstd = at("rstd"),
                                 .weight = at("weight"),
                                 .accumulate = accumulate});
  });
  expect_near(parity, {"y", "rstd", "dresidual", "dweight"});
  if (delta) expect_near(parity, {"sum"});
}

TEST_P(DenseKernel, NormsRowsOfEveryWidth) {
  compare_norms(GetParam(), 70, 256, true, true);
  compare_norms(GetParam(), 600, 64, true, false);
  compare_norms(GetParam(), 3, 2816, false, true);
  compare_norms(GetParam(), 17, 37, true, true);
  compare_norms(GetParam(), 1, 1, false, false);
}

TEST_P(DenseKernel, MultipliesGateAndUp) {
  for (const std::int64_t ffn : {344, 37, 1}) {
    Parity parity(GetParam());
    parity.input("gate_up", random_normal(DType::kF32, {19, 2 * ffn}, 1, 2.0));
    parity.input("dy", random_normal(DType::kF32, {19, ffn}, 2));
    parity.output("y", {19, ffn});
    parity.run({19}, [](Ops& ops, const auto& at, const Documents& /*documents*/) {
      ops.run(SwiGluForward{.y = at("y"), .gate_up = at("gate_up")});
      ops.run(SwiGluBackward{.dgate_up = at("gate_up"), .dy = at("dy"), .gate_up = at("gate_up")});
    });
    expect_near(parity, {"y", "gate_up"});
  }
}

TEST_P(DenseKernel, EmbedsTokensAndAddsTheirGradients) {
  for (const std::int64_t dim : {64, 35}) {
    Parity parity(GetParam());
    parity.input("tokens", whole_numbers(500, 40, 7), Kind::kInteger);
    parity.input("table", random_normal(DType::kF32, {50, dim}, 1));
    parity.output("out", {500, dim});
    parity.input("dout", random_normal(DType::kF32, {500, dim}, 2));
    parity.input("dtable", random_normal(DType::kF32, {50, dim}, 3), Kind::kStat);
    parity.run({500}, [](Ops& ops, const auto& at, const Documents& /*documents*/) {
      ops.run(EmbeddingForward{.out = at("out"), .tokens = at("tokens"), .table = at("table")});
      ops.run(
          EmbeddingBackward{.dtable = at("dtable"), .dout = at("dout"), .tokens = at("tokens")});
    });
    EXPECT_TRUE(parity.same("out"));
    EXPECT_TRUE(parity.near("dtable", 1e-5));
  }
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

TEST_P(DenseKernel, GatesMixTheBranches) {
  compare_gates(GetParam(), 16, 64, true);
  compare_gates(GetParam(), 3, 128, false);
  compare_gates(GetParam(), 5, 36, true);
  compare_gates(GetParam(), 2, 7, true);
}

TEST_P(DenseKernel, CastsMasterWeights) {
  Parity parity(GetParam());
  parity.input("in", random_normal(DType::kF32, {1003}, 1), Kind::kStat);
  parity.output("out", {1003});
  parity.run({1}, [](Ops& ops, const auto& at, const Documents& /*documents*/) {
    ops.run(Cast{.out = at("out"), .in = at("in")});
  });
  expect_near(parity, {"out"});
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

TEST_P(DenseKernel, UpdatesNothingWhereTheNormIsNotFinite) {
  compare_updates(GetParam(), 1.0, false);
}

}  // namespace
}  // namespace nsa
