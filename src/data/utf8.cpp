#include "data/utf8.h"

#include <array>

namespace nsa {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// The range of the second byte, and the length, that a first byte asks for (RFC 3629, section 4).
struct Lead {
  unsigned char first, last;
  unsigned char second_from, second_to;
  std::size_t length;
};
constexpr std::array<Lead, 8> kLeads = {{{0xC2, 0xDF, 0x80, 0xBF, 2},
                                         {0xE0, 0xE0, 0xA0, 0xBF, 3},
                                         {0xE1, 0xEC, 0x80, 0xBF, 3},
                                         {0xED, 0xED, 0x80, 0x9F, 3},
                                         {0xEE, 0xEF, 0x80, 0xBF, 3},
                                         {0xF0, 0xF0, 0x90, 0xBF, 4},
                                         {0xF1, 0xF3, 0x80, 0xBF, 4},
                                         {0xF4, 0xF4, 0x80, 0x8F, 4}}};

}  // namespace

std::size_t utf8_length(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return 1;
  for (const Lead& lead : kLeads) {
    if (byte(0) < lead.first || byte(0) > lead.last) continue;
    if (text.size() < lead.length) return 0;
    if (byte(1) < lead.second_from || byte(1) > lead.second_to) return 0;
    for (std::size_t i = 2; i < lead.length; ++i) {
      if ((byte(i) & 0xC0U) != 0x80) return 0;
    }
    return lead.length;
  }
  return 0;
}

std::size_t append_repaired(std::string_view text, std::string& out) {
  std::size_t replaced = 0;
  std::size_t kept_from = 0;
  std::size_t at = 0;
  while (at < text.size()) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {  // most text, most of the time
      ++at;
      continue;
    }
    const std::size_t length = utf8_length(text.substr(at));
    if (length == 0) {
      out.append(text.substr(kept_from, at - kept_from)).append(kReplacement);
      ++replaced;
      kept_from = at + 1;
    }
    at += length == 0 ? 1 : length;
  }
  out.append(text.substr(kept_from));
  return replaced;
}

}  // namespace nsa
