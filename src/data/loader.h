#pragma once

// Loader: the order in which a run reads its data, as a function of (seed, epoch, cursor).

#include <cstdint>

#include "core/batch.h"
#include "data/batch_builder.h"
#include "data/page_order.h"
#include "data/token_dataset.h"

namespace nsa {

/// All that moves in data/: what a checkpoint keeps of it.
struct LoaderState {
  std::int64_t epoch = 0;
  std::int64_t cursor = 0;   ///< tokens of this epoch, in page order, already served or skipped;
                             ///< less than the epoch holds: its end is the start of the next one
  std::int64_t dropped = 0;  ///< tokens skipped at stage edges since the start of the run
  friend bool operator==(const LoaderState&, const LoaderState&) = default;
};

struct LoaderOptions {
  std::int64_t page = 0;  ///< tokens, the largest seq_len of the schedule
  std::uint64_t seed = 0;
  bool shuffle = true;
  bool doc_mask = false;
  std::int64_t max_rows = 0;         ///< tokens of the largest micro-batch
  std::int64_t vocab_size = kAnyId;  ///< an id outside it is a data error when it is served
};

/// Throws Error (code 3) where `data` has not one input and one target for an evaluation.
void check_one_target(const TokenDataset& data);

/// Page i is inputs [i * page, (i + 1) * page) with targets one further; an epoch is
/// (tokens - 1) / page pages, permuted by (seed, epoch). A stage with a shorter seq_len cuts a page
/// into consecutive sequences.
class Loader {
 public:
  /// `data` and `device` must outlive it. Throws Error (code 3) when there is less than one page,
  /// (code 2) for doc_mask over shards that do not tell where documents start.
  Loader(const TokenDataset& data, const LoaderOptions& options, Device& device);

  /// The next `sequences` sequences of `seq_len` tokens, each a row of documents. seq_len divides
  /// the page. With doc_mask a sequence is split where documents start, and the target of the last
  /// token of a document is ignored. The views live until the next call.
  Batch next(std::int64_t sequences, std::int64_t seq_len);
  /// At a stage edge: skips what is left of a begun page.
  void finish_page();

  const LoaderState& state() const { return state_; }
  /// Throws Error (code 4) for a state that this data cannot be in.
  void seek(const LoaderState& state);
  std::int64_t pages_per_epoch() const { return pages_; }
  std::int64_t epoch_tokens() const { return pages_ * options_.page; }
  /// Tokens that no epoch serves: the tail after the last page.
  std::int64_t tail_tokens() const;
  /// The page that is read `index`-th in `epoch`.
  std::int64_t page_at(std::int64_t epoch, std::int64_t index) const;

 private:
  void advance(std::int64_t tokens);

  const TokenDataset* data_;
  LoaderOptions options_;
  std::int64_t pages_ = 0;
  PageOrder order_;
  LoaderState state_;
  BatchBuilder builder_;
};

/// A fixed set of sequences in file order, for evaluation: every batch size sees the same targets.
class SequentialLoader {
 public:
  /// `data` and `device` must outlive it.
  /// Serves the first min(limit, available) targets of `data`, cut into sequences of seq_len (the
  /// last one may be shorter), of options.page until restart() tells another length; seed and
  /// shuffle have no meaning here. Throws Error (code 3) when there is not one target.
  SequentialLoader(const TokenDataset& data, const LoaderOptions& options, Device& device,
                   std::int64_t limit);
  /// Starts over, with sequences of seq_len.
  void restart(std::int64_t seq_len);
  /// Up to `sequences` sequences; rows 0 when there are none left.
  Batch next(std::int64_t sequences);
  /// Rows that one pass serves, with those whose target doc_mask ignores.
  std::int64_t targets() const { return targets_total_; }

 private:
  std::int64_t targets_total_ = 0;
  std::int64_t at_ = 0;
  std::int64_t seq_len_ = 0;
  BatchBuilder builder_;
};

}  // namespace nsa
