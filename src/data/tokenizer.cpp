#include "data/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include <sentencepiece_processor.h>

#include "core/checksum.h"
#include "core/error.h"
#include "core/format.h"

namespace nsa {
namespace {

// sentencepiece writes a space as this character inside its pieces, and would read the character
// itself as a space.
constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581
// sentencepiece takes about 40 bytes of memory for each character that it encodes at once, and
// sorts its merges: short parts are twice as fast as whole documents.
constexpr std::size_t kPartBytes = 1024;

std::string read_file(const std::string& path) {
  std::error_code error;
  if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error)) {
    fail_data(path + ": is not a regular file; name a sentencepiece model");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) fail_data(path + ": cannot be opened; name a sentencepiece model");
  std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad() || bytes.empty()) {
    fail_data(path + ": cannot be read or is empty; name a sentencepiece model");
  }
  return bytes;
}

}  // namespace

struct Tokenizer::Impl {
  sentencepiece::SentencePieceProcessor model;
  std::uint32_t fingerprint = 0;
  std::vector<std::int32_t> space_mark;  ///< the byte pieces of U+2581; empty: the model has none
  bool parts_agree = false;  ///< a text may be cut behind its newlines without changing its pieces

  void append(std::string_view text, std::vector<std::int32_t>& out) const {
    if (text.empty()) return;
    std::vector<int> ids;
    const auto status = model.Encode({text.data(), text.size()}, &ids);
    check(status.ok(), "Tokenizer: sentencepiece cannot encode");
    out.insert(out.end(), ids.begin(), ids.end());
  }

  /// Whether the pieces of a text are those of its parts: no piece reaches over a newline, and the
  /// model puts nothing before a text and takes nothing from its ends.
  bool can_cut() const {
    for (int id = 0; id < model.GetPieceSize(); ++id) {
      const std::string& piece = model.IdToPiece(id);
      const std::size_t newline = piece.find('\n');
      if (newline == std::string::npos) continue;
      if (piece.find_first_not_of('\n', newline) != std::string::npos) return false;
    }
    std::vector<std::int32_t> parts;
    append("a.\n\n", parts);
    append(" b ", parts);
    std::vector<std::int32_t> whole;
    append("a.\n\n b ", whole);
    return parts == whole;
  }

  /// Text without U+2581, a part at a time where the model allows it.
  void append_parts(std::string_view text, std::vector<std::int32_t>& out) const {
    while (parts_agree && text.size() > kPartBytes) {
      // A part ends behind a run of newlines.
      std::size_t end = text.find('\n', kPartBytes);
      if (end != std::string_view::npos) end = text.find_first_not_of('\n', end);
      if (end == std::string_view::npos) break;
      append(text.substr(0, end), out);
      text.remove_prefix(end);
    }
    append(text, out);
  }
};

Tokenizer::Tokenizer(const std::string& path) : impl_(std::make_unique<Impl>()) {
  const std::string bytes = read_file(path);
  const auto status = impl_->model.LoadFromSerializedProto({bytes.data(), bytes.size()});
  if (!status.ok() || impl_->model.GetPieceSize() == 0) {
    fail_data(path + ": is not a sentencepiece model; make one with nsa_tokenize train");
  }
  impl_->fingerprint = crc32(0, bytes.data(), static_cast<std::int64_t>(bytes.size()));
  for (const char byte : kSpaceMark) {
    const std::string piece = fmt::format("<0x{:02X}>", static_cast<unsigned char>(byte));
    const int id = impl_->model.PieceToId(piece);
    if (impl_->model.IsByte(id)) impl_->space_mark.push_back(id);
  }
  if (impl_->space_mark.size() != kSpaceMark.size()) impl_->space_mark.clear();
  impl_->parts_agree = impl_->can_cut();
}

Tokenizer::~Tokenizer() = default;

std::int64_t Tokenizer::vocab_size() const {
  return impl_->model.GetPieceSize();
}
std::int64_t Tokenizer::eos_id() const {
  return impl_->model.eos_id();
}
std::uint32_t Tokenizer::fingerprint() const {
  return impl_->fingerprint;
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  while (!impl_->space_mark.empty()) {
    const std::size_t at = text.find(kSpaceMark);
    if (at == std::string_view::npos) break;
    impl_->append_parts(text.substr(0, at), ids);
    ids.insert(ids.end(), impl_->space_mark.begin(), impl_->space_mark.end());
    text.remove_prefix(at + kSpaceMark.size());
  }
  impl_->append_parts(text, ids);
  return ids;
}

std::string Tokenizer::decode(const std::vector<std::int32_t>& tokens) const {
  // A model may have more rows than its tokenizer has pieces; the others have no text.
  std::vector<int> known;
  known.reserve(tokens.size());
  std::copy_if(tokens.begin(), tokens.end(), std::back_inserter(known),
               [this](std::int32_t id) { return id >= 0 && id < vocab_size(); });
  std::string text;
  const auto status = impl_->model.Decode(known, &text);
  check(status.ok(), "Tokenizer: sentencepiece cannot decode");
  return text;
}

}  // namespace nsa
