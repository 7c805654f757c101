// The writer of Megatron's pairs.

#include <array>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/format.h"
#include "data/megatron_shard.h"

namespace nsa {
namespace {

constexpr std::int64_t kMostTokensOfADocument = std::numeric_limits<std::int32_t>::max();

template <class T>
void write_array(AtomicFile& file, const std::vector<T>& values) {
  file.write(values.data(), static_cast<std::int64_t>(values.size() * sizeof(T)));
}

}  // namespace

MegatronShardWriter::MegatronShardWriter(const std::string& path, const ShardLabel& label)
    : file_(path),
      index_(megatron_index_path(path)),
      type_(megatron_type_for(label.vocab_size)),
      vocab_size_(label.vocab_size) {}

void MegatronShardWriter::add_document(std::span<const std::int32_t> ids) {
  check_ids(file_.path(), ids, vocab_size_);
  if (ids.empty()) return;
  const auto count = static_cast<std::int64_t>(ids.size());
  if (count > kMostTokensOfADocument) {
    fail_data(
        fmt::format("{}: a document has {} tokens, and Megatron counts at most {}; split the "
                    "document, or use --format nsa",
                    file_.path(), count, kMostTokensOfADocument));
  }
  const std::int64_t id_bytes = type_ == MegatronType::kU16 ? 2 : 4;
  lengths_.push_back(static_cast<std::int32_t>(count));
  pointers_.push_back(tokens_ * id_bytes);
  write_ids(file_, ids, id_bytes);
  tokens_ += count;
}

std::vector<AtomicFile> MegatronShardWriter::finish() {
  const std::uint64_t version = 1;
  const std::uint64_t sequences = lengths_.size();
  const std::uint64_t boundaries = sequences + 1;
  index_.write(kMegatronMagic.data(), static_cast<std::int64_t>(kMegatronMagic.size()));
  index_.write(&version, sizeof version);
  index_.write(&type_, sizeof type_);
  index_.write(&sequences, sizeof sequences);
  index_.write(&boundaries, sizeof boundaries);
  write_array(index_, lengths_);
  write_array(index_, pointers_);
  // Each document is one sequence; the pointers are written, so their memory serves again.
  pointers_.resize(boundaries);
  std::iota(pointers_.begin(), pointers_.end(), std::int64_t{0});
  write_array(index_, pointers_);
  file_.close();
  index_.close();
  std::vector<AtomicFile> files;
  // An index appears after what it describes.
  files.push_back(std::move(file_));
  files.push_back(std::move(index_));
  return files;
}

}  // namespace nsa
