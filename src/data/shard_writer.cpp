#include "data/shard_writer.h"

#include <algorithm>
#include <array>
#include <bit>

#include "core/error.h"
#include "core/format.h"
#include "data/llmc_shard.h"
#include "data/megatron_shard.h"
#include "data/nsa_shard.h"

namespace nsa {

// Every format is little-endian, and numbers are written as they stand in memory.
static_assert(std::endian::native == std::endian::little);

std::unique_ptr<ShardWriter> make_shard_writer(ShardFormat format, const std::string& path,
                                               const ShardLabel& label) {
  switch (format) {
    case ShardFormat::kLlmc:
      return std::make_unique<LlmcShardWriter>(path, label);
    case ShardFormat::kMegatron:
      return std::make_unique<MegatronShardWriter>(path, label);
    case ShardFormat::kNsa:
      break;
  }
  return std::make_unique<NsaShardWriter>(path, label);
}

void check_ids(const std::string& path, std::span<const std::int32_t> ids,
               std::int64_t vocab_size) {
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= vocab_size) {
      fail_data(
          fmt::format("{}: token id {} is outside the vocabulary of {}", path, id, vocab_size));
    }
  }
}

void write_ids(AtomicFile& file, std::span<const std::int32_t> ids, std::int64_t id_bytes) {
  check(id_bytes == 2 || id_bytes == 4, "write_ids: 2 or 4 bytes an id");
  if (id_bytes == 4) {
    file.write(ids.data(), static_cast<std::int64_t>(ids.size_bytes()));
    return;
  }
  std::array<std::uint16_t, 1024> narrow{};
  while (!ids.empty()) {
    const auto part = ids.first(std::min(ids.size(), narrow.size()));
    std::transform(part.begin(), part.end(), narrow.begin(),
                   [](std::int32_t id) { return static_cast<std::uint16_t>(id); });
    file.write(narrow.data(), static_cast<std::int64_t>(part.size() * sizeof narrow[0]));
    ids = ids.subspan(part.size());
  }
}

}  // namespace nsa
