#include "data/token_shard.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/format.h"
#include "data/llmc_shard.h"
#include "data/megatron_shard.h"
#include "data/nsa_shard.h"

namespace nsa {
namespace {

constexpr std::string_view kLlmqMagic = "BIN.TOK\n";
constexpr std::string_view kGzipMagic = "\x1f\x8b";
constexpr std::string_view kZstdMagic = "\x28\xb5\x2f\xfd";

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    text += fmt::format("{}{:02x}", text.empty() ? "" : " ", static_cast<unsigned char>(byte));
  }
  return text;
}

bool is_text(std::string_view head) {
  return !head.empty() && std::all_of(head.begin(), head.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 32 || byte == '\n' || byte == '\r' || byte == '\t';
  });
}

/// Whether `path` is an index by its name, or has one beside it.
bool has_index(const std::string& path) {
  std::error_code error;  // a name that cannot be followed is no index
  return std::filesystem::exists(megatron_index_path(path), error);
}

/// The format that the first bytes tell, or the index beside the file.
std::optional<ShardFormat> detect_format(const std::string& path,
                                         std::span<const std::byte> bytes) {
  const std::string_view text = as_text(bytes);
  const std::string_view magic(NsaShardHeader::kMagic.data(), NsaShardHeader::kMagic.size());
  if (text.starts_with(magic)) return ShardFormat::kNsa;
  if (llmc_kind(bytes)) return ShardFormat::kLlmc;
  if (text.starts_with(kMegatronMagic) || has_index(path)) return ShardFormat::kMegatron;
  return std::nullopt;
}

[[noreturn]] void fail_unknown(const std::string& path, std::span<const std::byte> bytes) {
  const std::string_view text = as_text(bytes);
  const std::string other = llmc_other_file(bytes);
  if (!other.empty()) {
    fail_data(path + ": is " + other +
              " of llm.c, wanted a token shard; name the shards that training reads");
  }
  if (text.starts_with(kLlmqMagic)) {
    fail_data(path +
              ": looks like an LLMQ token file, a format that is not in this version, which reads "
              "nsa, llm.c and Megatron files; make shards from text with nsa_tokenize encode");
  }
  if (is_text(text.substr(0, 64)) || text.starts_with(kGzipMagic) || text.starts_with(kZstdMagic)) {
    fail_data(path +
              ": holds text, not tokens, and this version trains on token shards; make them with "
              "nsa_tokenize encode --in " +
              path);
  }
  fail_data(
      fmt::format("{}: starts with the bytes [{}], which is no token format known here (nsa, "
                  "llm.c, or a Megatron .bin with its .idx beside it); make shards from text with "
                  "nsa_tokenize encode",
                  path, hex(text.substr(0, 8))));
}

template <class Id>
void widen(const std::byte* from, std::span<std::int32_t> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    Id value = 0;
    std::memcpy(&value, from + sizeof(Id) * i, sizeof value);
    if constexpr (sizeof(Id) <= sizeof(std::uint16_t)) {
      out[i] = value;
    } else {
      out[i] = value > Id{std::numeric_limits<std::int32_t>::max()}
                   ? -1
                   : static_cast<std::int32_t>(value);
    }
  }
}

}  // namespace

std::int64_t TokenShard::id(std::int64_t position) const {
  const auto bytes = static_cast<std::size_t>(id_bytes);
  std::uint64_t value = 0;
  std::memcpy(&value, ids.data() + position * id_bytes, bytes);
  if (signed_ids && bytes < sizeof value) {
    const std::uint64_t sign = std::uint64_t{1} << (8 * bytes - 1);
    value = (value ^ sign) - sign;
  }
  return static_cast<std::int64_t>(value);
}

void TokenShard::read(std::int64_t begin, std::span<std::int32_t> out) const {
  const std::byte* from = ids.data() + begin * id_bytes;
  switch (id_bytes) {
    case 1:
      return widen<std::uint8_t>(from, out);
    case 2:
      return widen<std::uint16_t>(from, out);
    case 4:
      return widen<std::uint32_t>(from, out);
    default:
      return widen<std::uint64_t>(from, out);
  }
}

std::optional<ShardFormat> find_format(const std::string& path) {
  return detect_format(path, MappedFile(path).bytes());
}

TokenShard open_shard(const std::string& path, std::optional<ShardFormat> wanted) {
  std::error_code error;  // what cannot be followed cannot be opened either, which tells why
  if (std::filesystem::is_directory(path, error)) {
    fail_data(path + ": is a folder; name its shards, for example " +
              (std::filesystem::path(path) / "*.bin").string());
  }
  // The tokens of a Megatron pair have no first bytes of their own, so they may be any.
  if (wanted == ShardFormat::kMegatron && has_index(path)) return open_megatron_shard(path);
  MappedFile file(path);
  const std::optional<ShardFormat> found = detect_format(path, file.bytes());
  if (!found && file.bytes().empty()) {
    fail_data(path +
              ": is empty, wanted a token shard; copy it again or make it anew with "
              "nsa_tokenize encode");
  }
  if (!found && wanted == ShardFormat::kMegatron) return open_megatron_shard(path);
  if (!found) fail_unknown(path, file.bytes());
  if (wanted && *wanted != *found) {
    fail_data(
        fmt::format("{}: is a shard of format {}, but data.format is {}; set data.format: "
                    "auto, or name other files",
                    path, shard_format_name(*found), shard_format_name(*wanted)));
  }
  switch (*found) {
    case ShardFormat::kLlmc:
      return open_llmc_shard(path, std::move(file));
    case ShardFormat::kMegatron:
      return open_megatron_shard(path);
    case ShardFormat::kNsa:
      break;
  }
  return open_nsa_shard(path, std::move(file));
}

}  // namespace nsa
