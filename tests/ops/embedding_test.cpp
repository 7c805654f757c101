#include "ops/embedding.h"

#include <gtest/gtest.h>

#include "ops/backend.h"
#include "support/near.h"

namespace nsa {
namespace {

using test::near;
using test::Owned;
using test::random_normal;
using test::same;

constexpr std::int64_t kVocabulary = 11;

/// Ids that repeat and leave some of the vocabulary out.
Owned token_ids(std::int64_t rows) {
  Owned tokens(DType::kI32, {rows});
  for (std::int64_t r = 0; r < rows; ++r) tokens.set(r, static_cast<double>(r * r % 7));
  return tokens;
}

TEST(Embedding, ForwardCopiesTheRowOfEachToken) {
  const Backend cpu = make_backend("cpu", 2);
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const Owned table = random_normal(dtype, {kVocabulary, 37}, 1);
    const Owned tokens = token_ids(600);
    const Owned out(dtype, {600, 37});
    cpu.ops->run(EmbeddingForward{.out = out, .tokens = tokens, .table = table});
    for (std::int64_t i = 0; i < out.size(); ++i) {
      const auto token = static_cast<std::int64_t>(tokens.get(i / 37));
      ASSERT_EQ(out.get(i), table.get(token * 37 + i % 37));
    }
  }
}

TEST(Embedding, BackwardAddsTheRowsOfOneTokenInOrder) {
  const Backend cpu = make_backend("cpu", 2);
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const Owned dtable = random_normal(dtype, {kVocabulary, 70}, 1);
    const Owned wanted = random_normal(dtype, {kVocabulary, 70}, 1);
    const Owned tokens = token_ids(50);
    const Owned dout = random_normal(dtype, {50, 70}, 2);
    cpu.ops->run(EmbeddingBackward{.dtable = dtable, .dout = dout, .tokens = tokens});
    for (std::int64_t i = 0; i < dout.size(); ++i) {
      const std::int64_t at = static_cast<std::int64_t>(tokens.get(i / 70)) * 70 + i % 70;
      wanted.set(at, wanted.get(at) + dout.get(i));  // set() rounds to the type, as the sum does
    }
    EXPECT_TRUE(same(dtable, wanted));
  }
}

TEST(Embedding, BackwardDoesNotDependOnThreads) {
  const Backend one = make_backend("cpu", 1);
  const Backend three = make_backend("cpu", 3);
  const Owned tokens = token_ids(400);
  const Owned dout = random_normal(DType::kF32, {400, 130}, 2);
  const Owned a(DType::kF32, {kVocabulary, 130});
  const Owned b(DType::kF32, {kVocabulary, 130});
  one.ops->run(EmbeddingBackward{.dtable = a, .dout = dout, .tokens = tokens});
  three.ops->run(EmbeddingBackward{.dtable = b, .dout = dout, .tokens = tokens});
  EXPECT_TRUE(same(a, b));
}

TEST(Embedding, NoRowsAreLegal) {
  const Backend cpu = make_backend("cpu", 2);
  const Owned table = random_normal(DType::kF32, {kVocabulary, 8}, 1);
  const Owned before = random_normal(DType::kF32, {kVocabulary, 8}, 1);
  const Owned none(DType::kF32, {0, 8});
  cpu.ops->run(EmbeddingForward{.out = none, .tokens = token_ids(0), .table = table});
  cpu.ops->run(EmbeddingBackward{.dtable = table, .dout = none, .tokens = token_ids(0)});
  EXPECT_TRUE(same(table, before));
}

TEST(Embedding, CheckRefusesWrongTokens) {
  const Backend cpu = make_backend("cpu", 1);
  const Owned table(DType::kF32, {kVocabulary, 8});
  const Owned out(DType::kF32, {3, 8});
  const Owned floats(DType::kF32, {3});
  EXPECT_THROW(cpu.ops->run(EmbeddingForward{.out = out, .tokens = floats, .table = table}), Error);
  EXPECT_THROW(
      cpu.ops->run(EmbeddingBackward{.dtable = table, .dout = out, .tokens = token_ids(4)}), Error);
}

}  // namespace
}  // namespace nsa
