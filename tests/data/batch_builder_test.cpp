#include "data/batch_builder.h"

#include "data/shards.h"
#include "support/errors.h"
#include "support/files.h"

namespace nsa::test {
namespace {

Ids values(const Tensor& tensor) {
  const auto* data = tensor.as<std::int32_t>();
  return {data, data + tensor.size()};
}

Ids bounds(const Batch& batch) {
  return {batch.documents.bounds.begin(), batch.documents.bounds.end()};
}

/// Tokens 0..39 in documents of 7, 1, 8 and 24 tokens: they start at 0, 7, 8 and 16.
class FourDocuments : public ::testing::Test {
 protected:
  FourDocuments() : device_(make_cpu_device()) {
    write_shard(folder_.file("a.bin"),
                {counting(0, 7), counting(7, 8), counting(8, 16), counting(16, 40)});
    data_ = std::make_unique<TokenDataset>(std::vector<std::string>{folder_.file("a.bin")});
  }
  TempFolder folder_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<TokenDataset> data_;
};

TEST_F(FourDocuments, WithoutMaskEverySequenceIsOneDocument) {
  BatchBuilder builder(*data_, *device_, 16, false);
  builder.start();
  builder.add(4, 8);
  builder.add(20, 4);
  const Batch batch = builder.finish();
  EXPECT_EQ(values(batch.tokens), (Ids{4, 5, 6, 7, 8, 9, 10, 11, 20, 21, 22, 23}));
  EXPECT_EQ(values(batch.targets), (Ids{5, 6, 7, 8, 9, 10, 11, 12, 21, 22, 23, 24}));
  EXPECT_EQ(bounds(batch), (Ids{0, 8, 12}));
  EXPECT_EQ(values(batch.documents.device_bounds), bounds(batch));
  EXPECT_EQ(batch.targets_valid, 12);
}

TEST_F(FourDocuments, MaskSplitsWhereDocumentsStart) {
  BatchBuilder builder(*data_, *device_, 16, true);
  builder.start();
  builder.add(20, 4);
  builder.add(4, 8);
  const Batch batch = builder.finish();
  EXPECT_EQ(bounds(batch), (Ids{0, 4, 7, 8, 12}));
  EXPECT_EQ(values(batch.documents.device_bounds), bounds(batch));
}

TEST_F(FourDocuments, MaskIgnoresTheTargetOfTheLastTokenOfADocument) {
  BatchBuilder builder(*data_, *device_, 16, true);
  builder.start();
  builder.add(4, 8);
  const Batch batch = builder.finish();
  EXPECT_EQ(values(batch.tokens), counting(4, 12));
  EXPECT_EQ(values(batch.targets), (Ids{5, 6, kIgnoredTarget, kIgnoredTarget, 9, 10, 11, 12}));
  EXPECT_EQ(batch.targets_valid, 6);
}

TEST_F(FourDocuments, MaskIgnoresTheLastTargetWhereTheNextSequenceStartsADocument) {
  BatchBuilder builder(*data_, *device_, 16, true);
  builder.start();
  builder.add(8, 8);
  const Batch batch = builder.finish();
  EXPECT_EQ(bounds(batch), (Ids{0, 8}));
  EXPECT_EQ(values(batch.targets).back(), kIgnoredTarget);
  EXPECT_EQ(batch.targets_valid, 7);
}

TEST_F(FourDocuments, ABatchWithoutSequencesHasNoRows) {
  BatchBuilder builder(*data_, *device_, 16, false);
  builder.start();
  const Batch batch = builder.finish();
  EXPECT_EQ(batch.tokens.size(), 0);
  EXPECT_EQ(bounds(batch), Ids{0});
  EXPECT_EQ(batch.targets_valid, 0);
}

TEST_F(FourDocuments, MoreRowsThanPlannedAreRefused) {
  BatchBuilder builder(*data_, *device_, 8, false);
  builder.start();
  builder.add(0, 8);
  EXPECT_THROW(builder.add(8, 1), Error);
}

TEST_F(FourDocuments, AnIdOutsideTheVocabularyIsADataErrorAsInputAndAsTarget) {
  BatchBuilder builder(*data_, *device_, 8, false, 12);
  builder.start();
  builder.add(4, 7);  // the last target is 11
  for (const std::int64_t position : {11, 12}) {
    builder.start();
    expect_error(ExitCode::kData, {folder_.file("a.bin"), "token 12 (at byte 88) is id 12"},
                 [&] { builder.add(position, 1); });
  }
}

TEST(BatchBuilder, TakesADocumentARow) {
  const TempFolder folder;
  std::vector<Ids> documents;
  for (std::int32_t i = 0; i < 9; ++i) documents.push_back({i});
  write_shard(folder.file("a"), documents);
  const TokenDataset data({folder.file("a")});
  const auto device = make_cpu_device();
  BatchBuilder builder(data, *device, 8, true);
  const std::int64_t allocations = device->allocations();
  builder.start();
  builder.add(0, 8);
  const Batch batch = builder.finish();
  EXPECT_EQ(bounds(batch), counting(0, 9));
  EXPECT_EQ(batch.targets_valid, 0);
  EXPECT_EQ(device->allocations(), allocations);
}

TEST(BatchBuilder, MaskOverShardsWithoutDocumentsIsAConfigError) {
  const TempFolder folder;
  NsaShardHeader header;
  header.tokens = 4;
  header.vocab_size = 9;
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes += std::string(8, '\0');
  const TokenDataset data({folder.write("a.bin", bytes)});
  const auto device = make_cpu_device();
  expect_error(ExitCode::kConfig, {"data.doc_mask", folder.file("a.bin")},
               [&] { const BatchBuilder builder(data, *device, 2, true); });
}

}  // namespace
}  // namespace nsa::test
