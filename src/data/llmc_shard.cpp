#include "data/llmc_shard.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/format.h"

namespace nsa {
namespace {

constexpr std::size_t kHeaderInts = kLlmcHeaderBytes / sizeof(std::int32_t);

std::int32_t magic_of(std::span<const std::byte> bytes) {
  std::int32_t magic = 0;
  if (bytes.size() >= sizeof magic) std::memcpy(&magic, bytes.data(), sizeof magic);
  return magic;
}

}  // namespace

std::optional<LlmcKind> llmc_kind(std::span<const std::byte> bytes) {
  for (const LlmcKind& kind : {kLlmcNarrow, kLlmcWide}) {
    if (magic_of(bytes) == kind.magic) return kind;
  }
  return std::nullopt;
}

std::string llmc_other_file(std::span<const std::byte> bytes) {
  constexpr std::array<std::pair<std::int32_t, std::string_view>, 5> kOthers = {
      {{20240522, "an evaluation set"},
       {20240326, "a model"},
       {20240527, "the state of a run"},
       {20240328, "a tokenizer"},
       {20240803, "a Llama 3 model"}}};
  for (const auto& [magic, name] : kOthers) {
    if (magic_of(bytes) == magic) return std::string(name);
  }
  return "";
}

TokenShard open_llmc_shard(const std::string& path, MappedFile file) {
  const std::span<const std::byte> bytes = file.bytes();
  const auto size = static_cast<std::int64_t>(bytes.size());
  const std::optional<LlmcKind> kind = llmc_kind(bytes);
  check(kind.has_value(), "open_llmc_shard: another format");
  if (size < kLlmcHeaderBytes) {
    fail_data(
        fmt::format("{}: is {} bytes long, shorter than the {}-byte header of an llm.c shard; the "
                    "file is cut off, copy or make it again",
                    path, size, kLlmcHeaderBytes));
  }
  std::array<std::int32_t, kHeaderInts> header{};
  std::memcpy(header.data(), bytes.data(), sizeof header);
  if (header[1] != kind->version) {
    fail_data(
        fmt::format("{}: is an llm.c shard of version {}, wanted version {} for the magic number "
                    "{}; make the shard again",
                    path, header[1], kind->version, kind->magic));
  }
  const std::int64_t tokens = header[2];
  const std::int64_t wanted = kLlmcHeaderBytes + tokens * kind->id_bytes;
  if (tokens < 0 || size != wanted) {
    fail_data(
        fmt::format("{}: is {} bytes long, but its header ({} tokens of {} bytes) wants {}; the "
                    "file is cut off or damaged, copy or make it again",
                    path, size, tokens, kind->id_bytes,
                    tokens < 0 ? "at least 0 tokens" : fmt::format("{} bytes", wanted)));
  }
  const auto used = std::find_if(header.begin() + 3, header.end(), [](auto x) { return x != 0; });
  if (used != header.end()) {
    fail_data(
        fmt::format("{}: the bytes at {} of its header hold {}, wanted 0 from byte 12 to byte {}; "
                    "the file is damaged or of another version, make the shard again",
                    path, (used - header.begin()) * 4, *used, kLlmcHeaderBytes - 1));
  }
  TokenShard shard;
  shard.path = path;
  shard.format = ShardFormat::kLlmc;
  shard.header = bytes.first(kLlmcHeaderBytes);
  shard.ids = bytes.subspan(kLlmcHeaderBytes);
  shard.count = tokens;
  shard.id_bytes = kind->id_bytes;
  shard.file = std::move(file);
  return shard;
}

}  // namespace nsa
