#include "data/megatron_shard.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "core/error.h"
#include "core/format.h"
#include "core/log.h"

namespace nsa {
namespace {

constexpr std::uint64_t kVersion = 1;
constexpr const char* kAgain = "; the file is cut off or damaged, copy or make it again";

/// The arrays of an index, which stand unaligned: every number is copied out.
class Index {
 public:
  Index(std::string path, std::span<const std::byte> bytes)
      : path_(std::move(path)), bytes_(bytes) {
    check_header();
    check_size();
  }

  std::int64_t sequences() const { return sequences_; }
  std::int64_t documents() const { return boundaries_ - 1; }
  std::int64_t id_bytes() const { return id_bytes_; }
  bool is_signed() const { return is_signed_; }
  const std::string& path() const { return path_; }

  std::int64_t length(std::int64_t i) const {
    return at<std::int32_t>(kMegatronHeaderBytes + i * 4);
  }
  std::int64_t pointer(std::int64_t i) const {
    return at<std::int64_t>(kMegatronHeaderBytes + sequences_ * 4 + i * 8);
  }
  std::int64_t boundary(std::int64_t i) const {
    return at<std::int64_t>(kMegatronHeaderBytes + sequences_ * 12 + i * 8);
  }

 private:
  template <class T>
  T at(std::int64_t offset) const {
    T value{};
    std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }

  void check_header();
  void check_type(int code);
  void check_size() const;

  std::string path_;
  std::span<const std::byte> bytes_;
  std::int64_t sequences_ = 0;
  std::int64_t boundaries_ = 0;
  std::int64_t id_bytes_ = 0;
  bool is_signed_ = false;
};

void Index::check_header() {
  const auto size = static_cast<std::int64_t>(bytes_.size());
  const std::size_t start = std::min(bytes_.size(), kMegatronMagic.size());
  // An empty file has no address that memcmp may be given.
  if (start == 0 || std::memcmp(bytes_.data(), kMegatronMagic.data(), start) != 0) {
    fail_data(path_ +
              ": does not start with MMIDIDX, wanted the index of a Megatron pair; name "
              "files of one data set, or make the index again");
  }
  if (size < kMegatronHeaderBytes) {
    fail_data(
        fmt::format("{}: is {} bytes long, shorter than the {}-byte header of a Megatron index{}",
                    path_, size, kMegatronHeaderBytes, kAgain));
  }
  const auto version = at<std::uint64_t>(9);
  if (version != kVersion) {
    fail_data(
        fmt::format("{}: is a Megatron index of version {}, wanted version {}; make the "
                    "data again",
                    path_, version, kVersion));
  }
  check_type(at<std::uint8_t>(17));
  sequences_ = at<std::int64_t>(18);
  boundaries_ = at<std::int64_t>(26);
  // What cannot fit into the file could overflow the size that is computed from it.
  if (sequences_ < 0 || sequences_ > size / 12 || boundaries_ < 1 || boundaries_ > size / 8) {
    fail_data(
        fmt::format("{}: its header tells {} sequences and {} document indices in {} bytes, wanted "
                    "12 bytes for each sequence and 8 for each of at least one index{}",
                    path_, static_cast<std::uint64_t>(sequences_),
                    static_cast<std::uint64_t>(boundaries_), size, kAgain));
  }
}

void Index::check_type(int code) {
  switch (static_cast<MegatronType>(code)) {
    case MegatronType::kU8:
      id_bytes_ = 1;
      return;
    case MegatronType::kU16:
      id_bytes_ = 2;
      return;
    case MegatronType::kI32:
      id_bytes_ = 4;
      break;
    case MegatronType::kI64:
      id_bytes_ = 8;
      break;
    default:
      fail_data(
          fmt::format("{}: its tokens have type {}, wanted 8 (u16), 4 (i32), 1 (u8) or 5 (i64); "
                      "the file is damaged or holds no tokens",
                      path_, code));
  }
  is_signed_ = true;
}

void Index::check_size() const {
  const auto size = static_cast<std::int64_t>(bytes_.size());
  const std::int64_t wanted = kMegatronHeaderBytes + sequences_ * 12 + boundaries_ * 8;
  if (sequences_ > 0 && size == wanted + sequences_) {
    fail_data(path_ +
              ": has a mode for each sequence, so the data are multimodal, and training "
              "wants text alone; make them again from the text");
  }
  if (size != wanted) {
    fail_data(
        fmt::format("{}: is {} bytes long, but its header ({} sequences, {} document indices) "
                    "wants {}{}",
                    path_, size, sequences_, boundaries_, wanted, kAgain));
  }
}

/// Where the tokens stand in the .bin.
struct Extent {
  std::int64_t begin = 0;  ///< bytes
  std::int64_t end = 0;
};

/// Sequences stand one behind the other, so that they are one array.
Extent check_sequences(const Index& index, const std::string& bin, std::int64_t bin_bytes) {
  Extent extent;
  for (std::int64_t i = 0; i < index.sequences(); ++i) {
    const std::int64_t length = index.length(i);
    const std::int64_t pointer = index.pointer(i);
    if (i == 0) extent = {.begin = pointer, .end = pointer};
    if (length < 0 || pointer < 0) {
      fail_data(fmt::format("{}: sequence {} has {} tokens at byte {}, wanted at least 0 of both{}",
                            index.path(), i, length, pointer, kAgain));
    }
    if (pointer != extent.end) {
      fail_data(
          fmt::format("{}: sequence {} starts at byte {} of the tokens, wanted {}, right "
                      "behind the one before it{}",
                      index.path(), i, pointer, extent.end, kAgain));
    }
    if (pointer > bin_bytes || length > (bin_bytes - pointer) / index.id_bytes()) {
      fail_data(
          fmt::format("{}: is {} bytes long, but sequence {} of {} has {} tokens of {} bytes from "
                      "byte {} on{}",
                      bin, bin_bytes, i, index.path(), length, index.id_bytes(), pointer, kAgain));
    }
    extent.end = pointer + length * index.id_bytes();
  }
  return extent;
}

/// Fills document_starts and empty_documents.
void read_documents(const Index& index, std::int64_t begin, TokenShard& shard) {
  const std::int64_t last = index.documents();
  if (index.boundary(0) != 0 || index.boundary(last) != index.sequences()) {
    fail_data(fmt::format("{}: its documents are the sequences {} to {}, wanted 0 to {}{}",
                          index.path(), index.boundary(0), index.boundary(last), index.sequences(),
                          kAgain));
  }
  const auto position = [&](std::int64_t sequence) {
    return sequence == index.sequences() ? shard.count
                                         : (index.pointer(sequence) - begin) / index.id_bytes();
  };
  shard.own_starts.reserve(static_cast<std::size_t>(last));
  std::int64_t start = 0;
  for (std::int64_t d = 0; d < last; ++d) {
    const std::int64_t next = index.boundary(d + 1);
    if (next < index.boundary(d) || next > index.sequences()) {
      fail_data(
          fmt::format("{}: document {} ends before sequence {}, wanted at least {} and at "
                      "most {}{}",
                      index.path(), d, next, index.boundary(d), index.sequences(), kAgain));
    }
    const std::int64_t end = position(next);
    if (start == end) {
      ++shard.empty_documents;
    } else {
      shard.own_starts.push_back(start);
    }
    start = end;
  }
  shard.document_starts = shard.own_starts;
}

}  // namespace

std::string megatron_tokens_path(const std::string& path) {
  return std::filesystem::path(path).replace_extension(".bin").string();
}

std::string megatron_index_path(const std::string& path) {
  return std::filesystem::path(path).replace_extension(".idx").string();
}

bool is_megatron_index(const std::string& path) {
  std::ifstream index(path, std::ios::binary);
  std::string start(kMegatronMagic.size(), '\0');
  return index.read(start.data(), static_cast<std::streamsize>(start.size())) &&
         start == kMegatronMagic;
}

TokenShard open_megatron_shard(const std::string& path) {
  const std::string bin = megatron_tokens_path(path);
  const std::string idx = megatron_index_path(path);
  for (const std::string& half : {bin, idx}) {
    std::error_code error;
    // What is there and cannot be followed is told when it is opened.
    if (std::filesystem::exists(std::filesystem::symlink_status(half, error))) continue;
    fail_data(half + ": is missing, and Megatron data are a pair of .bin and .idx; put it beside " +
              (half == bin ? idx : bin));
  }
  TokenShard shard;
  shard.path = bin;
  shard.format = ShardFormat::kMegatron;
  shard.file = MappedFile(bin);
  shard.index_file = MappedFile(idx);
  const Index index(idx, shard.index_file.bytes());
  const std::span<const std::byte> bytes = shard.file.bytes();
  const auto size = static_cast<std::int64_t>(bytes.size());
  const Extent extent = check_sequences(index, bin, size);
  shard.header = shard.index_file.bytes().first(kMegatronHeaderBytes);
  shard.ids = bytes.subspan(static_cast<std::size_t>(extent.begin),
                            static_cast<std::size_t>(extent.end - extent.begin));
  shard.id_bytes = index.id_bytes();
  shard.signed_ids = index.is_signed();
  shard.count = (extent.end - extent.begin) / shard.id_bytes;
  read_documents(index, extent.begin, shard);
  if (extent.begin > 0 || extent.end < size) {
    log::warn(fmt::format("{}: {} of its {} bytes belong to no sequence of {} and are not read",
                          bin, size - (extent.end - extent.begin), size, idx));
  }
  return shard;
}

}  // namespace nsa
