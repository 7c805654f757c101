// The same tokens give the same run, whatever format their shards have.

#include <map>

#include "data/shards.h"
#include "data/token_dataset.h"
#include "promises/tiny_run.h"

namespace nsa::test {
namespace {

class AnyFormat : public TinyRun {
 protected:
  void SetUp() override {
    TinyRun::SetUp();
    for (const ShardFormat format : {ShardFormat::kLlmc, ShardFormat::kMegatron}) {
      convert("train", format);
      convert("val", format);
    }
  }

  /// Writes the documents of a split as three shards of unequal length: <format>_<split>_N.bin.
  void convert(const std::string& split, ShardFormat format) {
    const TokenShard from = open_shard((folder_ / ("tokens_" + split + "_00000.bin")).string());
    end_ = from.eos_id;
    std::vector<Ids> documents;
    for (std::size_t d = 0; d < from.document_starts.size(); ++d) {
      const std::int64_t begin = from.document_starts[d];
      const std::int64_t end =
          d + 1 < from.document_starts.size() ? from.document_starts[d + 1] : from.count;
      documents.emplace_back(static_cast<std::size_t>(end - begin));
      from.read(begin, documents.back());
    }
    documents_[split] = documents.size();
    const ShardLabel label{.vocab_size = from.vocab_size};
    const std::vector<std::size_t> cuts = {0, 1, documents.size() / 3, documents.size()};
    for (std::size_t c = 0; c + 1 < cuts.size(); ++c) {
      const auto at = [&](std::size_t i) {
        return documents.begin() + static_cast<std::ptrdiff_t>(i);
      };
      const std::string name =
          shard_format_name(format) + "_" + split + "_" + std::to_string(c) + ".bin";
      write_shard((folder_ / name).string(), {at(cuts[c]), at(cuts[c + 1])}, label, format);
    }
  }

  Overrides data_of(const std::string& format, const Overrides& more) const {
    Overrides all = {"data.train=" + (folder_ / (format + "_train_*")).string(),
                     "data.val=" + (folder_ / (format + "_val_*")).string(),
                     "data.format=" + format, "train.steps=4", "checkpoint.every=0"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Overrides with_separator() const {
    return {"data.doc_mask=true", "data.doc_sep.id=" + std::to_string(end_),
            "data.doc_sep.where=after"};
  }

  std::int64_t end_ = -1;
  std::map<std::string, std::size_t> documents_;
};

TEST_F(AnyFormat, GivesTheSameLosses) {
  ASSERT_EQ(train("nsa", {"train.steps=4"}).code, 0);
  for (const char* format : {"llmc", "megatron"}) {
    const Outcome outcome = train(format, data_of(format, {}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(rows(format), rows("nsa"));
  }
  EXPECT_NE(rows("nsa").find("\"step\":4"), std::string::npos);
}

TEST_F(AnyFormat, GivesTheSameLossesInsideDocuments) {
  ASSERT_EQ(train("nsa", {"train.steps=4", "data.doc_mask=true"}).code, 0);
  const Outcome llmc = train("llmc", data_of("llmc", with_separator()));
  ASSERT_EQ(llmc.code, 0) << llmc.err;
  EXPECT_EQ(rows("llmc"), rows("nsa"));
  const Outcome megatron = train("megatron", data_of("megatron", {"data.doc_mask=true"}));
  ASSERT_EQ(megatron.code, 0) << megatron.err;
  EXPECT_EQ(rows("megatron"), rows("nsa"));
}

TEST_F(AnyFormat, ADocMaskWithoutDocumentsIsRefused) {
  const Outcome outcome = train("llmc", data_of("llmc", {"data.doc_mask=true"}));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("data.doc_sep.id"), std::string::npos) << outcome.err;
}

TEST_F(AnyFormat, ASeparatorOutsideTheVocabularyIsRefused) {
  const Outcome outcome = train("llmc", data_of("llmc", {"data.doc_sep.id=320"}));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("data.doc_sep.id is 320"), std::string::npos) << outcome.err;
}

TEST_F(AnyFormat, AnotherFormatThanAskedForIsRefused) {
  const Outcome outcome = train("x", {"data.format=megatron"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(outcome.err.find("data.format is megatron"), std::string::npos) << outcome.err;
}

TEST_F(AnyFormat, CheckDataCountsAndMeasuresItsDocuments) {
  for (const auto& [format, more] :
       {std::pair{"llmc", with_separator()}, std::pair{"megatron", Overrides{}}}) {
    const Outcome outcome = train(format, data_of(format, more), {}, {"--check-data"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    for (const auto& [split, count] : documents_) {
      EXPECT_NE(outcome.out.find(std::to_string(count) + " documents"), std::string::npos)
          << outcome.out;
    }
    EXPECT_NE(outcome.out.find("train: documents of "), std::string::npos) << outcome.out;
    EXPECT_NE(outcome.out.find(" tokens, median "), std::string::npos) << outcome.out;
  }
}

}  // namespace
}  // namespace nsa::test
