#include "data/token_dataset.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "core/checksum.h"
#include "core/error.h"
#include "core/format.h"
#include "data/globs.h"
#include "data/token_shard.h"

namespace nsa {

struct TokenDataset::Shard : TokenShard {
  std::int64_t begin = 0;  ///< position of its first token in the joined shards
  std::int64_t end() const { return begin + count; }
};

namespace {

/// Counts how often each id occurs. Several narrow tables: a run of one id would otherwise wait for
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

  /// Nats per token.
  double entropy(std::int64_t tokens) {
    settle();
    double sum = 0;
    for (const std::int64_t count : counts_) {
      if (count == 0) continue;
      const double share = static_cast<double>(count) / static_cast<double>(tokens);
      sum -= share * std::log(share);
    }
    return sum;
  }

 private:
  static constexpr std::int64_t kTables = 4;
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

template <class Id>
Id largest_of(const Id* ids, std::int64_t count) {
  Id largest = 0;
  for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, ids[i]);
  return largest;
}

[[noreturn]] void fail_id(const TokenShard& shard, std::int64_t position, std::int64_t id,
                          std::int64_t vocab_size) {
  fail_data(
      fmt::format("{}: token {} (at byte {}) is id {}, outside the vocabulary of {} tokens; "
                  "set model.vocab_size to at least the tokenizer's, or encode the text with "
                  "the right tokenizer",
                  shard.path, position, shard.byte_offset(position), id, vocab_size));
}

/// Checks and counts one shard; returns its largest id.
template <class Id>
std::int64_t scan(const TokenShard& shard, std::int64_t vocab_size, Histogram& histogram) {
  constexpr std::int64_t kBlock = 1 << 14;  // ids that stay in the first cache between two passes
  std::vector<Id> block(kBlock);
  std::int64_t largest = 0;
  for (std::int64_t begin = 0; begin < shard.count; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, shard.count - begin);
    // Ids of a foreign format may stand unaligned, so they are copied, which costs nothing here.
    std::memcpy(block.data(), shard.ids.data() + begin * shard.id_bytes,
                static_cast<std::size_t>(count * shard.id_bytes));
    const std::int64_t most = largest_of(block.data(), count);
    if (most >= vocab_size) {
      const auto at = std::find_if(block.begin(), block.begin() + count, [&](Id id) {
        return static_cast<std::int64_t>(id) >= vocab_size;
      });
      fail_id(shard, begin + (at - block.begin()), *at, vocab_size);
    }
    largest = std::max(largest, most);
    histogram.add(block.data(), count);
  }
  return largest;
}

/// The files that `patterns` name, each once, sorted by name.
std::vector<std::string> list_files(const std::vector<std::string>& patterns) {
  std::vector<std::string> paths;
  for (const std::string& pattern : patterns) {
    const std::vector<std::string> found = expand_glob(pattern);
    paths.insert(paths.end(), found.begin(), found.end());
  }
  std::sort(paths.begin(), paths.end());
  std::set<std::filesystem::path> seen;
  std::vector<std::string> once;
  for (const std::string& path : paths) {
    if (seen.insert(std::filesystem::weakly_canonical(path)).second) once.push_back(path);
  }
  return once;
}

}  // namespace

TokenDataset::TokenDataset(const std::vector<std::string>& patterns) {
  if (patterns.empty()) fail_data("a data set needs at least one file; name its shards or a glob");
  std::int64_t position = 0;
  for (const std::string& path : list_files(patterns)) {
    auto shard = std::make_unique<Shard>(Shard{{open_shard(path)}, position});
    if (!shards_.empty() && shards_.front()->tokenizer != shard->tokenizer) {
      fail_data(
          fmt::format("{} was made with tokenizer {:08x} and {} with {:08x}; encode all text of "
                      "one data set with one tokenizer",
                      shards_.front()->path, shards_.front()->tokenizer, path, shard->tokenizer));
    }
    position = shard->end();
    shards_.push_back(std::move(shard));
  }
}

TokenDataset::~TokenDataset() = default;
TokenDataset::TokenDataset(TokenDataset&&) noexcept = default;
TokenDataset& TokenDataset::operator=(TokenDataset&&) noexcept = default;

std::int64_t TokenDataset::tokens() const {
  return shards_.back()->end();
}
std::int64_t TokenDataset::shards() const {
  return static_cast<std::int64_t>(shards_.size());
}
bool TokenDataset::has_documents() const {
  return std::all_of(shards_.begin(), shards_.end(), [](const auto& shard) {
    return shard->count == 0 || !shard->document_starts.empty();
  });
}
std::int64_t TokenDataset::vocab_size() const {
  std::int64_t largest = 0;
  for (const auto& shard : shards_) largest = std::max(largest, shard->vocab_size);
  return largest;
}
std::uint32_t TokenDataset::tokenizer() const {
  return shards_.front()->tokenizer;
}
std::string TokenDataset::describe() const {
  const std::size_t more = shards_.size() - 1;
  return shards_.front()->path + (more == 0 ? "" : fmt::format(" (and {} more shards)", more));
}

const TokenDataset::Shard& TokenDataset::shard_of(std::int64_t position) const {
  // The first shard that ends beyond the position: empty shards never do.
  const auto found =
      std::upper_bound(shards_.begin(), shards_.end(), position,
                       [](std::int64_t at, const auto& shard) { return at < shard->end(); });
  check(found != shards_.end(), "TokenDataset: position behind the last token");
  return **found;
}

void TokenDataset::read(std::int64_t begin, std::span<std::int32_t> out) const {
  check(begin >= 0 && begin + static_cast<std::int64_t>(out.size()) <= tokens(),
        "TokenDataset: read out of range");
  while (!out.empty()) {
    const Shard& shard = shard_of(begin);
    const auto count =
        std::min<std::size_t>(out.size(), static_cast<std::size_t>(shard.end() - begin));
    shard.read(begin - shard.begin, out.first(count));
    begin += static_cast<std::int64_t>(count);
    out = out.subspan(count);
  }
}

void TokenDataset::document_starts(std::int64_t begin, std::int64_t end,
                                   std::vector<std::int32_t>& out) const {
  check(0 <= begin && begin < end && end <= tokens(), "TokenDataset: range out of range");
  std::int64_t at = begin;
  while (at < end) {
    const Shard& shard = shard_of(at);
    const auto starts = shard.document_starts;
    // Strictly behind `begin`: a sequence starts a document of its own there anyway.
    auto start = std::upper_bound(starts.begin(), starts.end(), begin - shard.begin);
    for (; start != starts.end() && shard.begin + *start < end; ++start) {
      out.push_back(static_cast<std::int32_t>(shard.begin + *start - begin));
    }
    at = shard.end();
  }
}

TokenStatistics TokenDataset::check_tokens(std::int64_t vocab_size) const {
  check(vocab_size > 0, "TokenDataset: vocab_size must be positive");
  TokenStatistics statistics;
  statistics.tokens = tokens();
  Histogram histogram(vocab_size);
  for (const auto& shard : shards_) {
    const std::int64_t largest = shard->id_bytes == 2
                                     ? scan<std::uint16_t>(*shard, vocab_size, histogram)
                                     : scan<std::uint32_t>(*shard, vocab_size, histogram);
    statistics.largest_id = std::max(statistics.largest_id, largest);
    statistics.documents += static_cast<std::int64_t>(shard->document_starts.size());
  }
  statistics.unigram_entropy = histogram.entropy(std::max<std::int64_t>(statistics.tokens, 1));
  return statistics;
}

std::uint32_t TokenDataset::fingerprint() const {
  constexpr std::size_t kEdgeBytes = 4096;
  std::uint32_t crc = 0;
  const auto add = [&crc](std::span<const std::byte> bytes) {
    crc = crc32(crc, bytes.data(), static_cast<std::int64_t>(bytes.size()));
  };
  for (const auto& shard : shards_) {
    const std::array<std::int64_t, 3> counts = {
        shard->count, shard->id_bytes, static_cast<std::int64_t>(shard->document_starts.size())};
    add(std::as_bytes(std::span(counts)));
    add(shard->header);
    const std::size_t edge = std::min(kEdgeBytes, shard->ids.size());
    add(shard->ids.first(edge));
    add(shard->ids.last(edge));
  }
  return crc;
}

}  // namespace nsa
