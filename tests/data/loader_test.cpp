#include "data/loader.h"

#include <algorithm>
#include <set>

#include "data/shards.h"
#include "support/errors.h"
#include "support/files.h"

namespace nsa::test {
namespace {

constexpr std::int64_t kPage = 12;
constexpr std::int64_t kPages = 8;

Ids values(const Tensor& tensor) {
  const auto* data = tensor.as<std::int32_t>();
  return {data, data + tensor.size()};
}

void append(Ids& stream, const Tensor& tensor) {
  const Ids more = values(tensor);
  stream.insert(stream.end(), more.begin(), more.end());
}

/// Tokens 0..100 in two shards: 8 pages of 12, and 5 tokens behind them.
class LoaderTest : public ::testing::Test {
 protected:
  LoaderTest() : device_(make_cpu_device()) {
    write_shard(folder_.file("0.bin"), {counting(0, 20), counting(20, 50)});
    write_shard(folder_.file("1.bin"), {counting(50, 101)});
    data_ = std::make_unique<TokenDataset>(std::vector<std::string>{folder_.file("*.bin")});
  }
  LoaderOptions options(bool shuffle = true) const {
    return {.page = kPage, .seed = 3, .shuffle = shuffle, .doc_mask = false, .max_rows = 4 * kPage};
  }
  Loader loader() { return {*data_, options(), *device_}; }
  /// The inputs of `sequences` sequences, `at_once` in a batch.
  static Ids take(Loader& loader, std::int64_t sequences, std::int64_t seq_len,
                  std::int64_t at_once = 1) {
    Ids stream;
    for (std::int64_t s = 0; s < sequences; s += at_once) {
      append(stream, loader.next(std::min(at_once, sequences - s), seq_len).tokens);
    }
    return stream;
  }

  TempFolder folder_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<TokenDataset> data_;
};

TEST_F(LoaderTest, CountsPagesAndWhatNoEpochServes) {
  const Loader made = loader();
  EXPECT_EQ(made.pages_per_epoch(), kPages);
  EXPECT_EQ(made.epoch_tokens(), 96);
  EXPECT_EQ(made.tail_tokens(), 5);
}

TEST_F(LoaderTest, TargetsAreOneFurther) {
  Loader made = loader();
  const Batch batch = made.next(3, kPage);
  Ids next = values(batch.tokens);
  for (std::int32_t& id : next) ++id;
  EXPECT_EQ(values(batch.targets), next);
}

TEST_F(LoaderTest, AnEpochServesEveryPageOnce) {
  Loader made = loader();
  for (int epoch = 0; epoch < 3; ++epoch) {
    Ids served = take(made, kPages, kPage);
    EXPECT_FALSE(std::is_sorted(served.begin(), served.end()));
    std::sort(served.begin(), served.end());
    EXPECT_EQ(served, counting(0, 96));
  }
}

TEST_F(LoaderTest, EpochsComeInDifferentOrders) {
  Loader made = loader();
  const Ids first = take(made, kPages, kPage);
  EXPECT_NE(take(made, kPages, kPage), first);
}

TEST_F(LoaderTest, WithoutShuffleFollowsTheFile) {
  Loader made(*data_, options(false), *device_);
  EXPECT_EQ(take(made, kPages, kPage), counting(0, 96));
  EXPECT_EQ(take(made, 1, kPage), counting(0, 12));
}

TEST_F(LoaderTest, AShorterStageCutsAPageIntoConsecutiveSequences) {
  Loader made = loader();
  Loader whole = loader();
  EXPECT_EQ(take(made, 3 * kPages, 4), take(whole, kPages, kPage));
}

TEST_F(LoaderTest, OrderIsTheSameForEveryMicroBatch) {
  Loader one = loader();
  const Ids expected = take(one, 60, 4, 1);  // two and a half epochs
  for (const std::int64_t at_once : {2, 3, 4, 12}) {
    Loader other = loader();
    EXPECT_EQ(take(other, 60, 4, at_once), expected) << at_once;
    EXPECT_EQ(other.state(), one.state());
  }
}

TEST_F(LoaderTest, ABatchMayFinishAnEpochAndStartTheNext) {
  Loader made = loader();
  Loader reference = loader();
  const Ids expected = take(reference, 12, kPage);
  Ids stream;
  for (int i = 0; i < 4; ++i) append(stream, made.next(3, kPage).tokens);
  EXPECT_EQ(stream, expected);
  EXPECT_EQ(made.state(), (LoaderState{.epoch = 1, .cursor = 4 * kPage, .dropped = 0}));
}

TEST_F(LoaderTest, TheEndOfAnEpochIsTheStartOfTheNext) {
  Loader made = loader();
  take(made, kPages, kPage);
  EXPECT_EQ(made.state(), (LoaderState{.epoch = 1, .cursor = 0, .dropped = 0}));
}

TEST_F(LoaderTest, GoesOnFromAnyStateAsIfNeverStopped) {
  Loader straight = loader();
  for (int step = 0; step < 40; ++step) {  // over an epoch edge and into the second epoch
    Loader resumed = loader();
    resumed.seek(straight.state());
    Loader again = loader();  // resumed from the state that the resumed one saved
    take(resumed, 5, 4);
    again.seek(resumed.state());
    Loader reference = loader();
    reference.seek(straight.state());
    take(reference, 5, 4);
    ASSERT_EQ(take(again, 30, 4), take(reference, 30, 4)) << step;
    take(straight, 1, 4);
  }
}

TEST_F(LoaderTest, FinishPageSkipsAndCountsTheRest) {
  Loader made = loader();
  take(made, 4, 4);  // a page and a third
  made.finish_page();
  EXPECT_EQ(made.state(), (LoaderState{.epoch = 0, .cursor = 2 * kPage, .dropped = 8}));
  Loader whole = loader();
  take(whole, 2, kPage);
  EXPECT_EQ(take(made, 3, kPage), take(whole, 3, kPage));
}

TEST_F(LoaderTest, FinishPageAtAPageEdgeSkipsNothing) {
  Loader made = loader();
  made.finish_page();
  take(made, 2, kPage);
  made.finish_page();
  EXPECT_EQ(made.state(), (LoaderState{.epoch = 0, .cursor = 2 * kPage, .dropped = 0}));
}

TEST_F(LoaderTest, FinishPageInTheLastPageStartsTheNextEpoch) {
  Loader made = loader();
  take(made, 3 * kPages - 1, 4);
  made.finish_page();
  EXPECT_EQ(made.state(), (LoaderState{.epoch = 1, .cursor = 0, .dropped = 4}));
}

TEST_F(LoaderTest, NextAllocatesNothingOnTheDevice) {
  Loader made = loader();
  const std::int64_t allocations = device_->allocations();
  take(made, 30, 4, 3);
  EXPECT_EQ(device_->allocations(), allocations);
}

TEST_F(LoaderTest, BrokenContractsAreRefused) {
  Loader made = loader();
  EXPECT_THROW(made.next(1, 5), Error);      // does not divide the page
  EXPECT_THROW(made.next(5, kPage), Error);  // more than max_rows
  made.next(1, 4);
  EXPECT_THROW(made.next(1, kPage), Error);  // a page was begun
}

TEST_F(LoaderTest, AStateThatTheDataCannotHoldIsACheckpointError) {
  Loader made = loader();
  expect_error(ExitCode::kCheckpoint, {"token 96 of epoch 0", "96 tokens", "0.bin"},
               [&] { made.seek({.epoch = 0, .cursor = 96, .dropped = 0}); });
}

TEST_F(LoaderTest, LessThanAPageIsADataErrorWithBothNumbers) {
  LoaderOptions large = options();
  large.page = 101;
  expect_error(ExitCode::kData, {"101 tokens", "at least 102", "seq_len"},
               [&] { const Loader made(*data_, large, *device_); });
  large.page = 100;
  EXPECT_EQ(Loader(*data_, large, *device_).pages_per_epoch(), 1);
}

TEST_F(LoaderTest, DocumentsAreSplitInTheirSequence) {
  LoaderOptions masked = options(false);
  masked.doc_mask = true;
  Loader made(*data_, masked, *device_);
  made.next(1, kPage);
  const Batch batch = made.next(3, kPage);  // tokens 12..47; a document starts at 20
  EXPECT_EQ(Ids(batch.documents.bounds.begin(), batch.documents.bounds.end()),
            (Ids{0, 8, 12, 24, 36}));
  EXPECT_EQ(batch.targets.as<std::int32_t>()[7], kIgnoredTarget);
  EXPECT_EQ(batch.targets_valid, 35);
}

TEST_F(LoaderTest, SequentialServesTheSameTargetsForEveryBatchSize) {
  for (const std::int64_t limit : {1, 29, 96, 100, 1000}) {
    SequentialLoader sequential(*data_, options(), *device_, limit);
    EXPECT_EQ(sequential.targets(), std::min<std::int64_t>(limit, 100));
    for (const std::int64_t at_once : {1, 2, 3, 4}) {
      sequential.restart(kPage);
      Ids stream;
      while (true) {
        const Batch batch = sequential.next(at_once);
        if (batch.tokens.size() == 0) break;
        append(stream, batch.targets);
      }
      ASSERT_EQ(stream, counting(1, static_cast<std::int32_t>(sequential.targets()) + 1))
          << limit << " " << at_once;
    }
  }
}

TEST_F(LoaderTest, SequentialCutsTheLastSequenceShort) {
  SequentialLoader sequential(*data_, options(), *device_, 29);
  sequential.restart(kPage);
  const Batch batch = sequential.next(4);
  EXPECT_EQ(Ids(batch.documents.bounds.begin(), batch.documents.bounds.end()),
            (Ids{0, 12, 24, 29}));
}

TEST_F(LoaderTest, SequentialWithoutOneTargetIsADataError) {
  write_shard(folder_.file("short"), {{5}});
  const TokenDataset data({folder_.file("short")});
  expect_error(ExitCode::kData, {folder_.file("short"), "1 tokens", "at least 2"},
               [&] { const SequentialLoader made(data, options(), *device_, 10); });
}

}  // namespace
}  // namespace nsa::test
