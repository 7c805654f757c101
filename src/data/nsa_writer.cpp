// The writer of the token shard format "nsa".

#include <array>
#include <utility>

#include "data/nsa_shard.h"

namespace nsa {
namespace {

constexpr std::int64_t kHeaderBytes = sizeof(NsaShardHeader);

}  // namespace

NsaShardWriter::NsaShardWriter(const std::string& path, const ShardLabel& label) : file_(path) {
  header_.id_bytes = static_cast<std::uint32_t>(id_bytes_for(label.vocab_size));
  header_.vocab_size = label.vocab_size;
  header_.tokenizer = label.tokenizer;
  header_.eos_id = static_cast<std::int32_t>(label.eos_id);
  file_.write(&header_, kHeaderBytes);
}

void NsaShardWriter::add_document(std::span<const std::int32_t> ids) {
  check_ids(file_.path(), ids, header_.vocab_size);
  if (ids.empty()) return;
  starts_.push_back(header_.tokens);
  write_ids(file_, ids, header_.id_bytes);
  header_.tokens += static_cast<std::int64_t>(ids.size());
}

std::vector<AtomicFile> NsaShardWriter::finish() {
  constexpr std::array<char, kNsaStartsAlignment> kZeros{};
  const std::int64_t end = kHeaderBytes + header_.tokens * header_.id_bytes;
  file_.write(kZeros.data(), nsa_starts_offset(header_.tokens, header_.id_bytes) - end);
  header_.documents = static_cast<std::int64_t>(starts_.size());
  file_.write(starts_.data(), header_.documents * kNsaStartsAlignment);
  file_.write_at(0, &header_, kHeaderBytes);
  file_.close();
  std::vector<AtomicFile> files;
  files.push_back(std::move(file_));
  return files;
}

}  // namespace nsa
