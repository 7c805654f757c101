// What a row's loss may depend on: earlier rows of its own document, and nothing else.

#include <gtest/gtest.h>

#include "model/small_model.h"
#include "model/sublayer.h"

namespace nsa {
namespace {

using test::OwnedBatch;
using test::relative_error;
using test::small_config;
using test::SmallModel;

constexpr std::int64_t kVocabulary = 13;

std::vector<double> part(const std::vector<double>& values, std::int64_t begin,
                         std::int64_t count) {
  return {values.begin() + begin, values.begin() + begin + count};
}

void change_token(const OwnedBatch& batch, std::int64_t row) {
  const auto old = static_cast<int>(batch.tokens().get(row));
  batch.tokens().set(row, (old + 1) % static_cast<int>(kVocabulary));
}

class Causality : public testing::TestWithParam<bool> {
 protected:
  static Config config() {
    Config config = small_config();
    if (GetParam()) config.attention.kind = AttentionKind::kDense;
    return config;
  }
};

TEST_P(Causality, LaterTokensNeverReachEarlierRows) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    SmallModel model(config(), dtype);
    const OwnedBatch batch({40}, kVocabulary);
    const std::vector<double> before = model.token_losses(batch);
    for (const std::int64_t row : {1, 7, 16, 31, 39}) {
      change_token(batch, row);
      const std::vector<double> after = model.token_losses(batch);
      EXPECT_EQ(part(after, 0, row), part(before, 0, row)) << row << " " << name_of(dtype);
      EXPECT_NE(after, before) << row;
      batch.tokens().set(row, OwnedBatch({40}, kVocabulary).tokens().get(row));
    }
  }
}

TEST_P(Causality, DocumentsDoNotReachEachOther) {
  SmallModel model(config(), DType::kF32);
  const OwnedBatch batch({19, 23}, kVocabulary);
  const std::vector<double> before = model.token_losses(batch);
  for (const std::int64_t row : {0, 5, 18}) change_token(batch, row);
  const std::vector<double> after = model.token_losses(batch);
  EXPECT_EQ(part(after, 19, 23), part(before, 19, 23));
  EXPECT_NE(part(after, 0, 19), part(before, 0, 19));
}

INSTANTIATE_TEST_SUITE_P(Kinds, Causality, testing::Bool(),
                         [](const auto& dense) { return dense.param ? "Dense" : "Nsa"; });

/// The documents of a packed batch one by one, each in a batch whose rows a second document fills
/// up to a multiple of 16: matmul libraries treat the rows of a last, partial tile otherwise.
std::vector<double> separate_losses(SmallModel& model, const OwnedBatch& packed,
                                    const std::vector<std::int64_t>& lengths) {
  std::vector<double> losses;
  std::int64_t begin = 0;
  for (const std::int64_t length : lengths) {
    OwnedBatch alone({length, (16 - length % 16) % 16}, kVocabulary, 99);
    alone.copy_rows(packed, begin, length, 0);
    const std::vector<double> own = model.token_losses(alone);
    losses.insert(losses.end(), own.begin(), own.begin() + length);
    begin += length;
  }
  return losses;
}

TEST(PackedDocuments, EqualSeparateOnesBitForBitInDouble) {
  const std::vector<std::int64_t> lengths = {21, 3, 1, 23};
  SmallModel model(small_config(), DType::kF64);
  const OwnedBatch packed(lengths, kVocabulary);
  EXPECT_EQ(model.token_losses(packed), separate_losses(model, packed, lengths));
}

TEST(PackedDocuments, EqualSeparateOnesInSinglePrecision) {
  const std::vector<std::int64_t> lengths = {21, 3, 1, 23};
  SmallModel model(small_config(), DType::kF32);
  const OwnedBatch packed(lengths, kVocabulary);
  EXPECT_LE(relative_error(model.token_losses(packed), separate_losses(model, packed, lengths)),
            1e-5);
}

TEST(PackedDocuments, HaveTheSumOfTheSeparateGradients) {
  const std::vector<std::int64_t> lengths = {21, 0, 3, 24};
  SmallModel model(small_config());
  const OwnedBatch packed(lengths, kVocabulary);
  model.train(packed);
  const std::vector<double> together = model.gradients();
  model.store().zero_gradients();
  std::int64_t begin = 0;
  for (const std::int64_t length : lengths) {
    OwnedBatch alone({length}, kVocabulary);
    alone.copy_rows(packed, begin, length, 0);
    if (length > 0) model.train(alone);
    begin += length;
  }
  EXPECT_LE(relative_error(model.gradients(), together), 1e-13);
}

}  // namespace
}  // namespace nsa
