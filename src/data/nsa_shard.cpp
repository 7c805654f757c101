#include "data/nsa_shard.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "core/error.h"
#include "core/format.h"

namespace nsa {

// Files are little-endian and are mapped, not decoded.
static_assert(std::endian::native == std::endian::little);

namespace {

constexpr std::int64_t kHeaderBytes = sizeof(NsaShardHeader);

void check_header(const std::string& path, const NsaShardHeader& header) {
  if (header.version != NsaShardHeader::kVersion) {
    fail_data(
        fmt::format("{}: is an nsa shard of version {}, and this program reads version {}; "
                    "encode the text again with nsa_tokenize",
                    path, header.version, NsaShardHeader::kVersion));
  }
  if (header.id_bytes != 2 && header.id_bytes != 4) {
    fail_data(
        fmt::format("{}: its header tells {} bytes per token, wanted 2 (u16) or 4 (u32); the file "
                    "is damaged, encode the text again",
                    path, header.id_bytes));
  }
  // Counts above this would overflow the size that is computed from them.
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 64;
  if (header.tokens < 0 || header.tokens > kMost || header.documents < 0 ||
      header.documents > header.tokens) {
    fail_data(
        fmt::format("{}: its header tells {} tokens in {} documents, wanted 0 <= documents <= "
                    "tokens; the file is damaged, encode the text again",
                    path, header.tokens, header.documents));
  }
  if (header.vocab_size < 0 || header.vocab_size > std::int64_t{1} << 31 ||
      (header.id_bytes == 2 && header.vocab_size > 65536)) {
    fail_data(
        fmt::format("{}: its header tells a vocabulary of {} with {}-byte tokens, which hold at "
                    "most {}; the file is damaged, encode the text again",
                    path, header.vocab_size, header.id_bytes,
                    header.id_bytes == 2 ? std::int64_t{65536} : std::int64_t{1} << 31));
  }
  // A vocabulary of 0 is an unknown one.
  const bool eos_inside = header.vocab_size == 0 || header.eos_id < header.vocab_size;
  if (header.eos_id < -1 || !eos_inside) {
    fail_data(
        fmt::format("{}: its header tells the end-of-text token {} in a vocabulary of {}, wanted "
                    "-1 (none) or a token of it; the file is damaged, encode the text again",
                    path, header.eos_id, header.vocab_size));
  }
  if (std::any_of(header.reserved.begin(), header.reserved.end(), [](auto b) { return b != 0; })) {
    fail_data(path +
              ": the reserved bytes 48 to 63 of its header are not zero, wanted zeros; the file "
              "is damaged or of a later version, encode the text again");
  }
}

void check_starts(const TokenShard& shard) {
  if (!shard.document_starts.empty() && shard.document_starts[0] != 0) {
    fail_data(
        fmt::format("{}: document 0 starts at token {}, wanted 0; the file is damaged, encode the "
                    "text again",
                    shard.path, shard.document_starts[0]));
  }
  std::int64_t previous = -1;
  for (std::size_t i = 0; i < shard.document_starts.size(); ++i) {
    const std::int64_t start = shard.document_starts[i];
    if (start <= previous || start >= shard.count) {
      fail_data(
          fmt::format("{}: document {} starts at token {}, wanted more than {} and less than {}; "
                      "the file is damaged, encode the text again",
                      shard.path, i, start, previous, shard.count));
    }
    previous = start;
  }
}

}  // namespace

TokenShard open_nsa_shard(const std::string& path, MappedFile file) {
  const std::span<const std::byte> bytes = file.bytes();
  const auto size = static_cast<std::int64_t>(bytes.size());
  if (size < kHeaderBytes) {
    fail_data(
        fmt::format("{}: is {} bytes long, shorter than the {}-byte header of an nsa shard; "
                    "the file is cut off, copy or encode it again",
                    path, size, kHeaderBytes));
  }
  NsaShardHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  check_header(path, header);
  const std::int64_t at = nsa_starts_offset(header.tokens, header.id_bytes);
  const std::int64_t wanted = at + header.documents * kNsaStartsAlignment;
  if (size != wanted) {
    fail_data(
        fmt::format("{}: is {} bytes long, but its header ({} tokens of {} bytes, {} "
                    "documents) wants {}; the file is cut off or damaged, copy or encode it "
                    "again",
                    path, size, header.tokens, header.id_bytes, header.documents, wanted));
  }
  TokenShard shard;
  shard.path = path;
  shard.header = bytes.first(kHeaderBytes);
  shard.ids =
      bytes.subspan(kHeaderBytes, static_cast<std::size_t>(header.tokens * header.id_bytes));
  shard.count = header.tokens;
  shard.id_bytes = header.id_bytes;
  // The mapping is page-aligned and `at` a multiple of 8, so the cast is aligned.
  shard.document_starts = {reinterpret_cast<const std::int64_t*>(bytes.data() + at),
                           static_cast<std::size_t>(header.documents)};
  shard.vocab_size = header.vocab_size;
  shard.tokenizer = header.tokenizer;
  shard.eos_id = header.eos_id;
  shard.file = std::move(file);
  check_starts(shard);
  return shard;
}

}  // namespace nsa
