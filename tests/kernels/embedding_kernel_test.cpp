#include <array>

#include "kernels/dense_case.h"
#include "ops/embedding.h"

namespace nsa {
namespace {

using test::Kind;
using test::Owned;
using test::Parity;
using test::random_normal;
using test::whole_numbers;

class EmbeddingKernel : public test::KernelTest {};
INSTANTIATE_TEST_SUITE_P(Types, EmbeddingKernel, ::testing::Values(DType::kF32, DType::kBF16),
                         test::type_name);

/// Where `tokens` names rows of a table of 50.
void compare_embeddings(DType dtype, const Owned& tokens, std::int64_t dim) {
  SCOPED_TRACE(::testing::Message() << tokens.size() << " rows of " << dim);
  Parity parity(dtype);
  const std::int64_t rows = tokens.size();
  parity.input("tokens", tokens, Kind::kInteger);
  parity.input("table", random_normal(DType::kF32, {50, dim}, 1));
  parity.output("out", {rows, dim});
  parity.input("dout", random_normal(DType::kF32, {rows, dim}, 2));
  parity.input("dtable", random_normal(DType::kF32, {50, dim}, 3), Kind::kStat);
  parity.run({rows}, [](Ops& ops, const auto& at, const Documents& /*documents*/) {
    ops.run(EmbeddingForward{.out = at("out"), .tokens = at("tokens"), .table = at("table")});
    ops.run(EmbeddingBackward{.dtable = at("dtable"), .dout = at("dout"), .tokens = at("tokens")});
  });
  EXPECT_TRUE(parity.same("out"));
  EXPECT_TRUE(parity.near("dtable", 1e-5));
}

TEST_P(EmbeddingKernel, EmbedsTokensAndAddsTheirGradients) {
  compare_embeddings(GetParam(), whole_numbers(500, 50, 7), 64);
  compare_embeddings(GetParam(), whole_numbers(500, 40, 7), 35);
  compare_embeddings(GetParam(), whole_numbers(1, 50, 7), 8);
  compare_embeddings(GetParam(), whole_numbers(0, 50, 7), 64);
  compare_embeddings(GetParam(), whole_numbers(70, 50, 7), 1160);
}

// Runs of one token in all places with respect to the tiles that they are summed by.
TEST_P(EmbeddingKernel, SumsLongRunsFromParts) {
  for (const std::int64_t rows : {63, 64, 65, 127, 128, 129, 1000}) {
    Owned tokens(DType::kI32, {rows});
    tokens.fill(49);
    compare_embeddings(GetParam(), tokens, 40);
  }
  // Sorted, the runs begin at 0, 64 and 150, and then at 0, 64 and 192; the last one at 699.
  for (const std::array<std::int64_t, 2>& ends :
       {std::array<std::int64_t, 2>{64, 150}, {64, 192}}) {
    Owned tokens(DType::kI32, {700});
    for (std::int64_t i = 0; i < 700; ++i) {
      const std::int64_t sorted = i * 263 % 700;  // 263 and 700 have no factor in common
      tokens.set(i, sorted < ends[0] ? 3 : sorted < ends[1] ? 20 : sorted < 699 ? 41 : 47);
    }
    compare_embeddings(GetParam(), tokens, 24);
  }
}

TEST_P(EmbeddingKernel, FrequentTokensAmongOthers) {
  Owned tokens = whole_numbers(3000, 50, 11);
  for (std::int64_t i = 0; i < 3000; i += 3) tokens.set(i, 17);
  compare_embeddings(GetParam(), tokens, 48);
}

TEST_P(EmbeddingKernel, TwoRunsGiveTheSameGradients) {
  Parity parity(GetParam());
  Owned tokens = whole_numbers(2000, 50, 11);
  for (std::int64_t i = 0; i < 2000; i += 2) tokens.set(i, 4);
  parity.input("tokens", tokens, Kind::kInteger);
  parity.input("dout", random_normal(DType::kF32, {2000, 40}, 2));
  for (const char* name : {"first", "second"}) {
    parity.input(name, Owned(DType::kF32, {50, 40}), Kind::kStat);
    parity.run({2000}, [&](Ops& ops, const auto& at, const Documents& /*documents*/) {
      ops.run(EmbeddingBackward{.dtable = at(name), .dout = at("dout"), .tokens = at("tokens")});
    });
  }
  EXPECT_TRUE(test::same(parity.fetch("first"), parity.fetch("second")));
}

}  // namespace
}  // namespace nsa
