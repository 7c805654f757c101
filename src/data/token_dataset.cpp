#include "data/token_dataset.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <tuple>
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

/// A file, and what names it.
struct Named {
  std::string path;
  std::string pattern;
  bool by_index = false;  ///< the tokens of a Megatron pair, found by the name of their index
};

/// A Megatron pair by the name of its tokens: its index, or the path without suffix, names it too.
std::vector<Named> expand(const std::string& pattern) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_regular_file(pattern, error) && fs::exists(pattern + ".idx", error)) {
    return {{.path = pattern + ".bin", .pattern = pattern}};
  }
  std::vector<Named> found;
  for (const std::string& path : expand_glob(pattern)) {
    const bool by_index = fs::path(path).extension() == ".idx";
    found.push_back({.path = by_index ? megatron_tokens_path(path) : path,
                     .pattern = pattern,
                     .by_index = by_index});
  }
  return found;
}

/// A shard read twice would count its tokens twice. Only both names of a Megatron pair are one.
void refuse_twice(const Named& first, const Named& second) {
  if (first.by_index != second.by_index) return;
  fail_data(first.path == second.path
                ? fmt::format("{}: is named twice, by {} and by {}; name each shard once",
                              first.path, first.pattern, second.pattern)
                : fmt::format("{}: is the same file as {}; name each shard once", second.path,
                              first.path));
}

/// The files that `patterns` name, sorted by name.
std::vector<std::string> list_files(const std::vector<std::string>& patterns) {
  std::vector<Named> all;
  for (const std::string& pattern : patterns) {
    const std::vector<Named> found = expand(pattern);
    all.insert(all.end(), found.begin(), found.end());
  }
  std::stable_sort(all.begin(), all.end(), [](const Named& a, const Named& b) {
    return std::tie(a.path, a.by_index) < std::tie(b.path, b.by_index);
  });
  std::map<std::filesystem::path, const Named*> seen;
  std::vector<std::string> paths;
  for (const Named& file : all) {
    // A name that cannot be followed is told when it is opened.
    std::error_code error;
    const std::filesystem::path target = std::filesystem::weakly_canonical(file.path, error);
    const auto [first, is_new] =
        seen.emplace(error ? std::filesystem::path(file.path) : target, &file);
    if (is_new) {
      paths.push_back(file.path);
    } else {
      refuse_twice(*first->second, file);
    }
  }
  return paths;
}

/// Programs choose the width of a token by the vocabulary: another width tells another tokenizer,
/// also where a format does not name its tokenizer.
template <class Shards>
void refuse_other_width(const Shards& shards, const TokenShard& shard) {
  for (const auto& other : shards) {
    if (other->format != shard.format || other->id_bytes == shard.id_bytes) continue;
    fail_data(
        fmt::format("{} has tokens of {} bytes and {} of {}, so they are of different "
                    "vocabularies; encode all text of one data set with one tokenizer",
                    other->path, other->id_bytes, shard.path, shard.id_bytes));
  }
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
    refuse_other_width(shards_, *shard);
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

void TokenDataset::fail_id(std::int64_t position, std::int64_t vocab_size) const {
  const Shard& shard = shard_of(position);
  fail_id_outside(shard, position - shard.begin, vocab_size);
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

/// The tokens of each document, `separators` telling where separators stand in each shard.
std::vector<std::int64_t> TokenDataset::document_lengths(
    const std::vector<std::vector<std::int64_t>>& separators) const {
  std::vector<std::int64_t> lengths;
  std::int64_t begin = 0;
  const auto start_at = [&](std::int64_t position) {
    // The first may be told too; a separator and the index of the next shard tell the same place.
    if (position > begin) lengths.push_back(position - begin);
    begin = std::max(begin, position);
  };
  for (std::size_t s = 0; s < shards_.size(); ++s) {
    const Shard& shard = *shards_[s];
    for (const std::int64_t start : shard.document_starts) start_at(shard.begin + start);
    const std::int64_t behind = separator_ && !separator_->before ? 1 : 0;
    for (const std::int64_t at : separators[s]) start_at(shard.begin + at + behind);
  }
  start_at(tokens());
  return lengths;
}

TokenStatistics TokenDataset::check_tokens(std::int64_t vocab_size) const {
  std::vector<ScannedShard> scanned;
  TokenStatistics statistics;
  for (const auto& shard : shards_) {
    const bool separated = separator_ && !shard->has_index();
    scanned.push_back({.shard = shard.get(), .separator = separated ? separator_->id : -1});
    statistics.empty_documents += shard->empty_documents;
  }
  const TokenScan found = scan_tokens(scanned, vocab_size);
  statistics.tokens = tokens();
  statistics.largest_id = found.largest_id;
  statistics.unigram_entropy = found.unigram_entropy;
  for (const auto& positions : found.separators) {
    statistics.separators += static_cast<std::int64_t>(positions.size());
  }
  if (has_documents() && tokens() > 0) {
    std::vector<std::int64_t> lengths = document_lengths(found.separators);
    statistics.documents = static_cast<std::int64_t>(lengths.size());
    statistics.lengths = summarize(lengths);
  }
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
