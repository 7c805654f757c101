#include "data/token_scan.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <numeric>

#include "core/error.h"
#include "core/format.h"
#include "core/parallel.h"

namespace nsa {
namespace {

/// Counts how often each id occurs. Two narrow tables: a run of one id would otherwise wait for
/// each increment of the same counter to reach memory, and small tables stay in the cache.
class Histogram {
 public:
  explicit Histogram(std::int64_t vocab_size)
      : size_(static_cast<std::size_t>(vocab_size)), recent_(size_ * kTables), counts_(size_) {}

  /// Every id is below the vocabulary size.
  template <class Id>
  void add(const Id* ids, std::int64_t count) {
    std::int64_t i = 0;
    for (; i + kTables <= count; i += kTables) {
      for (std::int64_t table = 0; table < kTables; ++table) {
        ++recent_[static_cast<std::size_t>(table) * size_ + ids[i + table]];
      }
    }
    for (; i < count; ++i) ++recent_[ids[i]];
    unsettled_ += count;
    if (unsettled_ > kMostUnsettled) settle();
  }

  const std::vector<std::int64_t>& counts() {
    settle();
    return counts_;
  }

 private:
  static constexpr std::int64_t kTables = 2;
  static constexpr std::int64_t kMostUnsettled = std::int64_t{1} << 30;  // no counter overflows

  void settle() {
    for (std::size_t i = 0; i < recent_.size(); ++i) counts_[i % size_] += recent_[i];
    std::fill(recent_.begin(), recent_.end(), 0);
    unsettled_ = 0;
  }

  std::size_t size_;
  std::vector<std::uint32_t> recent_;  ///< [kTables, vocab_size]
  std::vector<std::int64_t> counts_;   ///< [vocab_size]
  std::int64_t unsettled_ = 0;         ///< tokens in recent_
};

/// What one worker found. Workers never write to each other's.
struct Tally {
  explicit Tally(std::int64_t vocab_size) : histogram(vocab_size) {}
  Histogram histogram;
  std::int64_t largest_id = 0;
};

/// Tokens [begin, end) of a shard: what a worker takes at a time.
struct Stretch {
  std::size_t shard = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::vector<std::int64_t> separators{};
};

std::vector<Stretch> cut(std::span<const ScannedShard> shards) {
  constexpr std::int64_t kTokens = std::int64_t{1} << 20;
  std::vector<Stretch> stretches;
  for (std::size_t s = 0; s < shards.size(); ++s) {
    const std::int64_t count = shards[s].shard->count;
    for (std::int64_t begin = 0; begin < count; begin += kTokens) {
      stretches.push_back({.shard = s, .begin = begin, .end = std::min(begin + kTokens, count)});
    }
  }
  return stretches;
}

template <class Id>
Id largest_of(const Id* ids, std::int64_t count) {
  Id largest = 0;
  for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, ids[i]);
  return largest;
}

/// False where an id is outside the vocabulary.
template <class Id>
bool scan(const ScannedShard& from, std::int64_t vocab_size, Stretch& stretch, Tally& tally) {
  constexpr std::int64_t kBlock = 1 << 14;  // ids that stay in the first cache between two passes
  const auto limit = static_cast<std::uint64_t>(vocab_size);  // an id below zero is far above it
  const bool separated = from.separator >= 0 && from.separator < vocab_size;
  std::vector<Id> block(kBlock);
  for (std::int64_t begin = stretch.begin; begin < stretch.end; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, stretch.end - begin);
    // Ids of a foreign format may stand unaligned, so they are copied, which costs nothing here.
    std::memcpy(block.data(), from.shard->ids.data() + begin * from.shard->id_bytes,
                static_cast<std::size_t>(count * from.shard->id_bytes));
    const Id most = largest_of(block.data(), count);
    if (most >= limit) return false;
    tally.largest_id = std::max(tally.largest_id, static_cast<std::int64_t>(most));
    tally.histogram.add(block.data(), count);
    if (!separated) continue;
    const auto id = static_cast<Id>(from.separator);
    for (std::int64_t i = 0; i < count; ++i) {
      if (block[static_cast<std::size_t>(i)] == id) stretch.separators.push_back(begin + i);
    }
  }
  return true;
}

bool scan_stretch(const ScannedShard& from, std::int64_t vocab_size, Stretch& stretch,
                  Tally& tally) {
  switch (from.shard->id_bytes) {
    case 1:
      return scan<std::uint8_t>(from, vocab_size, stretch, tally);
    case 2:
      return scan<std::uint16_t>(from, vocab_size, stretch, tally);
    case 4:
      return scan<std::uint32_t>(from, vocab_size, stretch, tally);
    default:
      return scan<std::uint64_t>(from, vocab_size, stretch, tally);
  }
}

}  // namespace

void fail_id_outside(const TokenShard& shard, std::int64_t position, std::int64_t vocab_size) {
  fail_data(fmt::format(
      "{}: token {} (at byte {}) is id {}, outside the vocabulary of {} tokens; "
      "set model.vocab_size to at least the tokenizer's, or encode the text with "
      "the right tokenizer",
      shard.path, position, shard.byte_offset(position), shard.id(position), vocab_size));
}

namespace {

[[noreturn]] void fail_first_id(const TokenShard& shard, const Stretch& stretch,
                                std::int64_t vocab_size) {
  std::int64_t position = stretch.begin;
  const auto is_outside = [&](std::int64_t id) { return id < 0 || id >= vocab_size; };
  while (position < stretch.end && !is_outside(shard.id(position))) ++position;
  check(position < stretch.end, "scan_tokens: no id outside the vocabulary");
  fail_id_outside(shard, position, vocab_size);
}

/// Nats per token. Whole counts are added first, so the number of workers changes no bit of it.
double entropy(std::vector<Tally>& tallies, std::int64_t vocab_size) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(vocab_size));
  for (Tally& tally : tallies) {
    const std::vector<std::int64_t>& own = tally.histogram.counts();
    for (std::size_t i = 0; i < counts.size(); ++i) counts[i] += own[i];
  }
  const auto tokens =
      static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
  double sum = 0;
  for (const std::int64_t count : counts) {
    if (count == 0) continue;
    const double share = static_cast<double>(count) / tokens;
    sum -= share * std::log(share);
  }
  return sum;
}

}  // namespace

TokenScan scan_tokens(std::span<const ScannedShard> shards, std::int64_t vocab_size) {
  check(vocab_size > 0, "scan_tokens: vocab_size must be positive");
  std::vector<Stretch> stretches = cut(shards);
  const auto count = static_cast<std::int64_t>(stretches.size());
  // Each has tables of its own: more than there are stretches, or than memory can feed, are no use.
  constexpr int kMostWorkers = 16;
  const int workers = std::min(WorkerPool::default_threads(), kMostWorkers);
  WorkerPool pool(static_cast<int>(std::clamp<std::int64_t>(count, 1, workers)));
  std::vector<Tally> tallies(static_cast<std::size_t>(pool.size()), Tally(vocab_size));
  std::atomic<std::int64_t> first_bad = count;
  pool.for_each(count, [&](std::int64_t index, int worker) {
    if (index > first_bad.load(std::memory_order_relaxed)) return;
    Stretch& stretch = stretches[static_cast<std::size_t>(index)];
    Tally& tally = tallies[static_cast<std::size_t>(worker)];
    if (scan_stretch(shards[stretch.shard], vocab_size, stretch, tally)) return;
    std::int64_t known = first_bad.load();
    while (index < known && !first_bad.compare_exchange_weak(known, index)) {
    }
  });
  if (first_bad < count) {
    const Stretch& bad = stretches[static_cast<std::size_t>(first_bad)];
    fail_first_id(*shards[bad.shard].shard, bad, vocab_size);
  }

  TokenScan found;
  found.separators.resize(shards.size());
  for (const Stretch& stretch : stretches) {
    std::vector<std::int64_t>& all = found.separators[stretch.shard];
    all.insert(all.end(), stretch.separators.begin(), stretch.separators.end());
  }
  for (const Tally& tally : tallies)
    found.largest_id = std::max(found.largest_id, tally.largest_id);
  found.unigram_entropy = entropy(tallies, vocab_size);
  return found;
}

DocumentLengths summarize(std::span<std::int64_t> lengths) {
  check(!lengths.empty(), "summarize: no documents");
  std::sort(lengths.begin(), lengths.end());
  const auto last = lengths.size() - 1;
  const std::int64_t sum = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  return {.shortest = lengths.front(),
          .median = lengths[last / 2],
          .p99 = lengths[(lengths.size() * 99 + 99) / 100 - 1],
          .longest = lengths.back(),
          .mean = static_cast<double>(sum) / static_cast<double>(lengths.size())};
}

}  // namespace nsa
