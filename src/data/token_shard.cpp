#include "data/token_shard.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/format.h"
#include "data/nsa_shard.h"

namespace nsa {
namespace {

constexpr std::string_view kMegatronIndex("MMIDIDX\0\0", 9);
constexpr std::string_view kLlmqMagic = "BIN.TOK\n";
constexpr std::string_view kGzipMagic = "\x1f\x8b";
constexpr std::string_view kZstdMagic = "\x28\xb5\x2f\xfd";

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Whether an .idx file of Megatron stands beside `path`: its .bin has no magic of its own.
bool has_megatron_index(const std::string& path) {
  std::ifstream index(std::filesystem::path(path).replace_extension(".idx"), std::ios::binary);
  std::string start(kMegatronIndex.size(), '\0');
  return index.read(start.data(), static_cast<std::streamsize>(start.size())) &&
         start == kMegatronIndex;
}

/// The name of a format that this version knows of but does not read; empty for none.
std::string foreign_format(const std::string& path, std::string_view head) {
  std::int32_t number = 0;
  if (head.size() >= sizeof number) std::memcpy(&number, head.data(), sizeof number);
  // llm.c's shards of the GPT-2 and of the Llama 3 tokenizer.
  if (number == 20240520 || number == 20240801) return "an llm.c token shard";
  if (head.starts_with(kMegatronIndex)) return "a Megatron index";
  if (head.starts_with(kLlmqMagic)) return "an LLMQ token file";
  if (has_megatron_index(path)) return "the token file of a Megatron pair";
  return "";
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

}  // namespace

std::int64_t TokenShard::id(std::int64_t position) const {
  std::uint32_t value = 0;
  std::memcpy(&value, ids.data() + position * id_bytes, static_cast<std::size_t>(id_bytes));
  return value;
}

void TokenShard::read(std::int64_t begin, std::span<std::int32_t> out) const {
  const std::byte* from = ids.data() + begin * id_bytes;
  if (id_bytes == 4) {
    std::memcpy(out.data(), from, out.size_bytes());
    return;
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t value = 0;
    std::memcpy(&value, from + 2 * i, sizeof value);
    out[i] = value;
  }
}

TokenShard open_shard(const std::string& path) {
  if (std::filesystem::is_directory(path)) {
    fail_data(path + ": is a folder; name its shards, for example " +
              (std::filesystem::path(path) / "*.bin").string());
  }
  MappedFile file(path);
  const std::string_view bytes = as_text(file.bytes());
  const std::string_view magic(NsaShardHeader::kMagic.data(), NsaShardHeader::kMagic.size());
  if (bytes.starts_with(magic)) return open_nsa_shard(path, std::move(file));
  const std::string foreign = foreign_format(path, bytes.substr(0, 64));
  if (!foreign.empty()) {
    fail_data(path + ": looks like " + foreign +
              ", a format that is not in this version, which reads nsa shards; make them from "
              "text with nsa_tokenize encode");
  }
  if (is_text(bytes.substr(0, 64)) || bytes.starts_with(kGzipMagic) ||
      bytes.starts_with(kZstdMagic)) {
    fail_data(path +
              ": holds text, not tokens, and this version trains on nsa shards; make them with "
              "nsa_tokenize encode --in " +
              path);
  }
  fail_data(
      fmt::format("{}: starts with the bytes [{}], which is no token format known here "
                  "(nsa; llm.c, Megatron and LLMQ files are recognised, but not in this "
                  "version); make nsa shards from text with nsa_tokenize encode",
                  path, hex(bytes.substr(0, 8))));
}

}  // namespace nsa
