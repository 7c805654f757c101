#include "recall/recall_task.h"

#include <memory>
#include <numeric>
#include <span>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "core/format.h"
#include "core/philox.h"
#include "data/shard_writer.h"

namespace nsa::recall {
namespace {

/// Random numbers that (seed, stream, document) name.
class Draws {
 public:
  Draws(std::uint64_t seed, std::uint64_t stream) : seed_(seed), stream_(stream) {}

  /// Uniform in [0, count).
  std::int64_t below(std::int64_t count) {
    const std::uint32_t bits = philox(seed_, stream_, next_++)[0];
    return static_cast<std::int64_t>((std::uint64_t{bits} * static_cast<std::uint64_t>(count)) >>
                                     32U);
  }

  /// `count` different numbers of [0, from), in random order.
  std::vector<std::int32_t> sample(std::int64_t count, std::int64_t from) {
    std::vector<std::int32_t> all(static_cast<std::size_t>(from));
    std::iota(all.begin(), all.end(), 0);
    for (std::int64_t i = 0; i < count; ++i) {
      std::swap(all[static_cast<std::size_t>(i)],
                all[static_cast<std::size_t>(i + below(from - i))]);
    }
    all.resize(static_cast<std::size_t>(count));
    return all;
  }

 private:
  std::uint64_t seed_;
  std::uint64_t stream_;
  std::uint64_t next_ = 0;
};

// The streams of one seed: documents of the two splits, and the lengths of the pages.
constexpr std::uint64_t kValStream = std::uint64_t{1} << 62U;
constexpr std::uint64_t kLengthStream = std::uint64_t{2} << 62U;

/// The vocabulary: keys and values by their number.
class Ids {
 public:
  static constexpr std::int32_t kFiller = 0;

  explicit Ids(const Task& task)
      : keys_(static_cast<std::int32_t>(task.keys)),
        values_(static_cast<std::int32_t>(task.values)) {}

  static std::int32_t key(std::int32_t key) { return 1 + key; }
  std::int32_t value(std::int32_t value) const { return 1 + keys_ + value; }
  std::int32_t record(std::int32_t key, std::int32_t value) const {
    return first_record() + key * values_ + value;
  }
  /// -1 where it is no record.
  std::int32_t key_of_record(std::int32_t id) const {
    return id < first_record() ? -1 : (id - first_record()) / values_;
  }
  std::int32_t value_of_record(std::int32_t id) const { return (id - first_record()) % values_; }

 private:
  std::int32_t first_record() const { return 1 + keys_ + values_; }

  std::int32_t keys_;
  std::int32_t values_;
};

/// One shard under way.
class Shard {
 public:
  Shard(const Task& task, const std::string& path)
      : writer_(make_shard_writer(ShardFormat::kNsa, path, {.vocab_size = task.vocab_size()})) {}

  void add(std::span<const std::int32_t> ids) {
    writer_->add_document(ids);
    ++documents_;
  }
  std::int64_t tokens() const { return writer_->tokens(); }
  std::int64_t documents() const { return documents_; }
  Written finish() {
    const Written written{.documents = documents_, .tokens = writer_->tokens()};
    for (AtomicFile& file : writer_->finish()) file.commit();
    return written;
  }

 private:
  std::unique_ptr<ShardWriter> writer_;
  std::int64_t documents_ = 0;
};

}  // namespace

void Task::check() const {
  const auto refuse_below = [](const char* option, std::int64_t value, std::int64_t least) {
    if (value < least) {
      fail_config(fmt::format("{} is {}; it must be at least {}", option, value, least));
    }
  };
  refuse_below("--values", values, 2);
  refuse_below("--shortest", shortest, 4);
  std::int64_t n = length;
  while (n > shortest && n % 2 == 0) n /= 2;
  if (n != shortest || shortest % 4 != 0) {
    fail_config(
        fmt::format("--shortest is {}; it must be a multiple of 4, and --length {} that number "
                    "times 1, 2, 4, 8 and so on",
                    shortest, length));
  }
  if (pairs(length) > keys) {
    fail_config(fmt::format("--keys is {}; --length {} needs at least {}, one for each pair", keys,
                            length, pairs(length)));
  }
  constexpr std::int64_t kMostIds = std::int64_t{1} << 24;
  if (keys > kMostIds / (values + 1)) {
    fail_config(fmt::format("--keys {} times --values {} are more than {} records", keys, values,
                            kMostIds));
  }
}

std::vector<std::int32_t> document(const Task& task, Split split, std::int64_t index,
                                   std::int64_t n) {
  const auto number = static_cast<std::uint64_t>(index);
  Draws draws(task.seed, split == Split::kVal ? kValStream | number : number);
  const std::int64_t pairs = Task::pairs(n);
  const std::vector<std::int32_t> keys = draws.sample(pairs, task.keys);
  const std::vector<std::int32_t> order = draws.sample(pairs, pairs);
  const Ids id(task);
  std::vector<std::int32_t> values;
  std::vector<std::int32_t> ids;
  for (const std::int32_t key : keys) {
    values.push_back(static_cast<std::int32_t>(draws.below(task.values)));
    ids.push_back(id.record(key, values.back()));
  }
  ids.resize(static_cast<std::size_t>(2 * pairs), Ids::kFiller);
  for (const std::int32_t pair : order) {
    ids.push_back(Ids::key(keys[static_cast<std::size_t>(pair)]));
    ids.push_back(id.value(values[static_cast<std::size_t>(pair)]));
  }
  return ids;
}

std::vector<Query> queries(const Task& task, const std::vector<std::int32_t>& document) {
  const auto n = static_cast<std::int64_t>(document.size());
  const std::int64_t pairs = Task::pairs(n);
  const auto at = [&](std::int64_t position) {
    return document[static_cast<std::size_t>(position)];
  };
  const Ids id(task);
  std::unordered_map<std::int32_t, std::int64_t> record_of;  // position, by the key's token
  for (std::int64_t i = 0; i < pairs; ++i) record_of[Ids::key(id.key_of_record(at(i)))] = i;
  std::vector<Query> found;
  for (std::int64_t position = n - 2 * pairs; position + 1 < n; position += 2) {
    const auto record = record_of.find(at(position));
    if (record == record_of.end() ||
        id.value(id.value_of_record(at(record->second))) != at(position + 1)) {
      fail_data(fmt::format(
          "a document of {} tokens is no recall task with --keys {} and --values {}: tokens {} and "
          "{} are not one of its pairs; give score the options that make was given",
          n, task.keys, task.values, position, position + 1));
    }
    found.push_back({.position = position, .distance = position - record->second});
  }
  return found;
}

Written write_train(const Task& task, const std::string& path, std::int64_t tokens) {
  task.check();
  std::int64_t lengths = 1;
  while (task.length >> lengths >= task.shortest) ++lengths;
  Shard shard(task, path);
  Draws draws(task.seed, kLengthStream);
  while (shard.tokens() < tokens) {
    const std::int64_t n = task.length >> draws.below(lengths);
    for (std::int64_t used = 0; used < task.length; used += n) {
      shard.add(document(task, Split::kTrain, shard.documents(), n));
    }
  }
  return shard.finish();
}

Written write_val(const Task& task, const std::string& path, std::int64_t documents) {
  task.check();
  Shard shard(task, path);
  while (shard.documents() < documents) {
    shard.add(document(task, Split::kVal, shard.documents(), task.length));
  }
  return shard.finish();
}

}  // namespace nsa::recall
