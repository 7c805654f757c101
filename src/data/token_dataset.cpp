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
#include "data/megatron_shard.h"
#include "data/token_shard.h"

namespace nsa {

struct TokenDataset::Shard : TokenShard {
  std::int64_t begin = 0;  ///< position of its first token in the joined shards
  std::int64_t end() const { return begin + count; }
  bool has_index() const { return count == 0 || !document_starts.empty(); }
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

/// Checks and counts one shard: its largest id and, where `separator` is one, how often it occurs.
template <class Id>
void scan(const TokenShard& shard, std::int64_t vocab_size, std::int64_t separator,
          Histogram& histogram, TokenStatistics& statistics) {
  constexpr std::int64_t kBlock = 1 << 14;  // ids that stay in the first cache between two passes
  const auto limit = static_cast<std::uint64_t>(vocab_size);  // an id below zero is far above it
  std::vector<Id> block(kBlock);
  for (std::int64_t begin = 0; begin < shard.count; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, shard.count - begin);
    // Ids of a foreign format may stand unaligned, so they are copied, which costs nothing here.
    std::memcpy(block.data(), shard.ids.data() + begin * shard.id_bytes,
                static_cast<std::size_t>(count * shard.id_bytes));
    const Id most = largest_of(block.data(), count);
    if (most >= limit) {
      const auto at = std::find_if(block.begin(), block.begin() + count,
                                   [limit](Id id) { return id >= limit; });
      const std::int64_t position = begin + (at - block.begin());
      fail_id(shard, position, shard.id(position), vocab_size);
    }
    statistics.largest_id = std::max(statistics.largest_id, static_cast<std::int64_t>(most));
    if (separator >= 0 && separator < vocab_size) {
      statistics.separators +=
          std::count(block.begin(), block.begin() + count, static_cast<Id>(separator));
    }
    histogram.add(block.data(), count);
  }
}

/// A Megatron pair by the name of its tokens: its index, or the path without suffix, names it too.
std::vector<std::string> expand(const std::string& pattern) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_regular_file(pattern, error) && fs::exists(pattern + ".idx", error)) {
    return {pattern + ".bin"};
  }
  std::vector<std::string> paths = expand_glob(pattern);
  for (std::string& path : paths) {
    if (fs::path(path).extension() == ".idx") path = megatron_tokens_path(path);
  }
  return paths;
}

/// The files that `patterns` name, each once, sorted by name.
std::vector<std::string> list_files(const std::vector<std::string>& patterns) {
  std::vector<std::string> paths;
  for (const std::string& pattern : patterns) {
    const std::vector<std::string> found = expand(pattern);
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

TokenDataset::TokenDataset(const std::vector<std::string>& patterns, const DatasetOptions& options)
    : separator_(options.separator) {
  if (patterns.empty()) fail_data("a data set needs at least one file; name its shards or a glob");
  std::int64_t position = 0;
  for (const std::string& path : list_files(patterns)) {
    auto shard = std::make_unique<Shard>(Shard{{open_shard(path, options.format)}, position});
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
  return separator_.has_value() || has_index();
}
bool TokenDataset::has_index() const {
  return std::all_of(shards_.begin(), shards_.end(),
                     [](const auto& shard) { return shard->has_index(); });
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
  const std::size_t before = out.size();
  std::int64_t at = begin;
  while (at < end) {
    const Shard& shard = shard_of(at);
    if (!shard.has_index() && separator_) separated_starts(shard, begin, end, out);
    const auto starts = shard.document_starts;
    // Strictly behind `begin`: a sequence starts a document of its own there anyway.
    auto start = std::upper_bound(starts.begin(), starts.end(), begin - shard.begin);
    for (; start != starts.end() && shard.begin + *start < end; ++start) {
      const auto offset = static_cast<std::int32_t>(shard.begin + *start - begin);
      // A separator at the end of the shard before has told this one already.
      if (out.size() == before || out.back() < offset) out.push_back(offset);
    }
    at = shard.end();
  }
}

/// The starts that separators in the shard tell, in (begin, end), which may lie in the next shard.
void TokenDataset::separated_starts(const Shard& shard, std::int64_t begin, std::int64_t end,
                                    std::vector<std::int32_t>& out) const {
  const std::int64_t behind = separator_->before ? 0 : 1;  // from the separator to the start
  std::int64_t at = std::max(shard.begin, begin + 1 - behind);
  const std::int64_t last = std::min(shard.end(), end - behind);
  std::array<std::int32_t, 1024> block{};
  while (at < last) {
    const auto count = static_cast<std::size_t>(
        std::min<std::int64_t>(last - at, static_cast<std::int64_t>(block.size())));
    shard.read(at - shard.begin, std::span(block).first(count));
    for (std::size_t i = 0; i < count; ++i) {
      if (block[i] != separator_->id) continue;
      out.push_back(static_cast<std::int32_t>(at + static_cast<std::int64_t>(i) + behind - begin));
    }
    at += static_cast<std::int64_t>(count);
  }
}

/// By the indices, and by the separators that were counted in the shards without one.
void TokenDataset::count_documents(TokenStatistics& statistics) const {
  for (const auto& shard : shards_) {
    statistics.documents += static_cast<std::int64_t>(shard->document_starts.size());
    statistics.empty_documents += shard->empty_documents;
  }
  if (!separator_ || tokens() == 0) return;
  statistics.documents += statistics.separators;
  // A document that no separator of its own tells stands at one end of the data.
  const std::int64_t edge = separator_->before ? 0 : tokens() - 1;
  const Shard& shard = shard_of(edge);
  if (!shard.has_index() && shard.id(edge - shard.begin) != separator_->id) ++statistics.documents;
}

TokenStatistics TokenDataset::check_tokens(std::int64_t vocab_size) const {
  check(vocab_size > 0, "TokenDataset: vocab_size must be positive");
  TokenStatistics statistics;
  statistics.tokens = tokens();
  Histogram histogram(vocab_size);
  for (const auto& shard : shards_) {
    const std::int64_t separator = separator_ && !shard->has_index() ? separator_->id : -1;
    const auto scan_as = [&](auto id) {
      scan<decltype(id)>(*shard, vocab_size, separator, histogram, statistics);
    };
    switch (shard->id_bytes) {
      case 1:
        scan_as(std::uint8_t{});
        break;
      case 2:
        scan_as(std::uint16_t{});
        break;
      case 4:
        scan_as(std::uint32_t{});
        break;
      default:
        scan_as(std::uint64_t{});
    }
  }
  count_documents(statistics);
  statistics.unigram_entropy = histogram.entropy(std::max<std::int64_t>(statistics.tokens, 1));
  return statistics;
}

std::uint32_t TokenDataset::fingerprint() const {
  constexpr std::size_t kEdgeBytes = 4096;
  std::uint32_t crc = 0;
  const auto add = [&crc](std::span<const std::byte> bytes) {
    crc = crc32(crc, bytes.data(), static_cast<std::int64_t>(bytes.size()));
  };
  const auto add_edges = [&add, kEdgeBytes](std::span<const std::byte> bytes) {
    const std::size_t edge = std::min(kEdgeBytes, bytes.size());
    add(bytes.first(edge));
    add(bytes.last(edge));
  };
  for (const auto& shard : shards_) {
    const std::array<std::int64_t, 3> counts = {
        shard->count, shard->id_bytes, static_cast<std::int64_t>(shard->document_starts.size())};
    add(std::as_bytes(std::span(counts)));
    add(shard->header);
    add_edges(shard->ids);
    add_edges(std::as_bytes(shard->document_starts));
  }
  return crc;
}

}  // namespace nsa
