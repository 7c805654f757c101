// Documents of shards without an index: told by the token between them.

#include <gtest/gtest.h>

#include "core/philox.h"
#include "data/batch_builder.h"
#include "data/foreign_bytes.h"
#include "data/shards.h"
#include "data/token_dataset.h"
#include "support/errors.h"
#include "support/files.h"

namespace nsa::test {
namespace {

constexpr std::int64_t kEnd = 9;

Ids starts(const TokenDataset& data, std::int64_t begin, std::int64_t end) {
  Ids out;
  data.document_starts(begin, end, out);
  return out;
}

/// The tokens 9 1 2 9 3 | 9 | 4 5 9 9 6 7 in three shards of llm.c.
class Separated : public ::testing::Test {
 protected:
  Separated() {
    folder_.write("0.bin", llmc_bytes<std::uint16_t>({9, 1, 2, 9, 3}));
    folder_.write("1.bin", llmc_bytes<std::uint16_t>({9}));
    folder_.write("2.bin", llmc_bytes<std::uint16_t>({4, 5, 9, 9, 6, 7}));
  }
  TokenDataset open(bool before) const {
    return TokenDataset({folder_.file("*.bin")},
                        {.separator = Separator{.id = kEnd, .before = before}});
  }
  TempFolder folder_;
};

TEST_F(Separated, DocumentsStartAtASeparatorThatStandsBefore) {
  const TokenDataset data = open(true);
  EXPECT_TRUE(data.has_documents());
  EXPECT_FALSE(data.has_index());
  EXPECT_EQ(starts(data, 0, 12), (Ids{3, 5, 8, 9}));
  EXPECT_EQ(starts(data, 3, 6), Ids{2});
  EXPECT_EQ(starts(data, 4, 5), Ids{});
  EXPECT_EQ(starts(data, 8, 9), Ids{});
}

TEST_F(Separated, DocumentsStartBehindASeparatorThatStandsAfter) {
  const TokenDataset data = open(false);
  EXPECT_EQ(starts(data, 0, 12), (Ids{1, 4, 6, 9, 10}));
  // The separator may be the last token of another shard.
  EXPECT_EQ(starts(data, 5, 7), Ids{1});
  EXPECT_EQ(starts(data, 6, 9), Ids{});
  EXPECT_EQ(starts(data, 8, 10), Ids{1});
}

TEST_F(Separated, DocumentsAreCountedWithThePartAtAnEnd) {
  EXPECT_EQ(open(true).check_tokens(10).documents, 5);
  EXPECT_EQ(open(true).check_tokens(10).separators, 5);
  EXPECT_EQ(open(false).check_tokens(10).documents, 6);
  const TokenDataset absent({folder_.file("*.bin")}, {.separator = Separator{.id = 8}});
  EXPECT_EQ(absent.check_tokens(10).separators, 0);
  EXPECT_EQ(absent.check_tokens(10).documents, 1);
  EXPECT_EQ(TokenDataset({folder_.file("*.bin")}).check_tokens(10).documents, 0);
}

TEST_F(Separated, AnIndexGoesBeforeTheSeparator) {
  // Shard 3 starts a document where the separator in front of it tells one too.
  folder_.write("3.bin", llmc_bytes<std::uint16_t>({9}));
  write_shard(folder_.file("4.bin"), {{9, 1, 9}, {2}}, {.vocab_size = 10});
  const TokenDataset data = open(false);
  EXPECT_EQ(starts(data, 10, 17), (Ids{3, 6}));
  EXPECT_TRUE(data.has_documents());
  EXPECT_EQ(data.check_tokens(10).separators, 6);
}

TEST_F(Separated, ABatchIsCutAtSeparators) {
  const auto device = make_cpu_device();
  const TokenDataset data = open(true);
  BatchBuilder builder(data, *device, 8, true);
  builder.start();
  builder.add(1, 8);  // 1 2 | 9 3 | 9 4 5 | 9, and the next document starts right behind
  const Batch batch = builder.finish();
  EXPECT_EQ(Ids(batch.documents.bounds.begin(), batch.documents.bounds.end()),
            (Ids{0, 2, 4, 7, 8}));
  const auto* targets = static_cast<const std::int32_t*>(batch.targets.data());
  EXPECT_EQ(Ids(targets, targets + 8),
            (Ids{2, kIgnoredTarget, 3, kIgnoredTarget, 4, 5, kIgnoredTarget, kIgnoredTarget}));
  EXPECT_EQ(batch.targets_valid, 4);
}

TEST_F(Separated, ADocMaskWithoutSeparatorAsksForOne) {
  const auto device = make_cpu_device();
  const TokenDataset data({folder_.file("*.bin")});
  expect_error(ExitCode::kConfig, {"data.doc_mask", folder_.file("0.bin"), "data.doc_sep.id"},
               [&] { const BatchBuilder builder(data, *device, 8, true); });
}

// The same documents in all three formats, cut into shards of unequal length.
TEST(Separator, EveryFormatTellsTheSameWindows) {
  const TempFolder folder;
  std::vector<Ids> documents = random_documents(3, 200, {700, 1, 64, 3000, 5, 1111, 2, 90});
  for (Ids& ids : documents) ids.push_back(200);
  const ShardLabel label{.vocab_size = 201};
  const std::vector<std::size_t> cuts = {0, 3, 4, 8};
  for (const auto format : {ShardFormat::kNsa, ShardFormat::kLlmc, ShardFormat::kMegatron}) {
    for (std::size_t c = 0; c + 1 < cuts.size(); ++c) {
      const auto from = documents.begin();
      write_shard(folder.file(shard_format_name(format) + std::to_string(c) + ".bin"),
                  std::vector<Ids>(from + static_cast<std::ptrdiff_t>(cuts[c]),
                                   from + static_cast<std::ptrdiff_t>(cuts[c + 1])),
                  label, format);
    }
  }
  const TokenDataset nsa({folder.file("nsa*")});
  const TokenDataset llmc({folder.file("llmc*")},
                          {.separator = Separator{.id = 200, .before = false}});
  const TokenDataset megatron({folder.file("megatron*")});
  ASSERT_EQ(llmc.tokens(), nsa.tokens());
  ASSERT_EQ(megatron.tokens(), nsa.tokens());
  EXPECT_EQ(megatron.shards(), 3);
  for (std::uint64_t i = 0; i < 300; ++i) {
    const auto random = philox(5, 0, i);
    const std::int64_t begin = random[0] % (nsa.tokens() - 1);
    const std::int64_t end = begin + 1 + random[1] % (nsa.tokens() - begin);
    Ids wanted(static_cast<std::size_t>(end - begin));
    nsa.read(begin, wanted);
    for (const TokenDataset* data : {&llmc, &megatron}) {
      Ids found(wanted.size());
      data->read(begin, found);
      ASSERT_EQ(found, wanted);
      ASSERT_EQ(starts(*data, begin, end), starts(nsa, begin, end)) << begin << " " << end;
    }
  }
}

TEST(Separator, APairIsNamedByEitherFileByBothOrByTheirPrefix) {
  const TempFolder folder;
  write_shard(folder.file("a.v2_document.bin"), {{1, 2}}, {.vocab_size = 10},
              ShardFormat::kMegatron);
  for (const char* name : {"a.v2_document", "a.v2_document.bin", "a.v2_document.idx", "a*", "*"}) {
    const TokenDataset data({folder.file(name)});
    EXPECT_EQ(data.tokens(), 2) << name;
    EXPECT_EQ(data.describe(), folder.file("a.v2_document.bin"));
  }
}

TEST(Separator, TheFingerprintKnowsWhereDocumentsStart) {
  const TempFolder folder;
  const std::string tokens = raw_tokens<std::uint16_t>({1, 2, 3, 4});
  folder.write("a.bin", tokens);
  folder.write("a.idx", megatron_index(8, 2, {2, 2}, {0, 1, 2}));
  folder.write("b.bin", tokens);
  folder.write("b.idx", megatron_index(8, 2, {1, 3}, {0, 1, 2}));
  EXPECT_NE(TokenDataset({folder.file("a.bin")}).fingerprint(),
            TokenDataset({folder.file("b.bin")}).fingerprint());
}

}  // namespace
}  // namespace nsa::test
