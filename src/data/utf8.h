#pragma once

// UTF-8: what is valid, and how invalid bytes are repaired.

#include <cstddef>
#include <string>
#include <string_view>

namespace nsa {

/// Bytes of the valid character at the start of `text` (RFC 3629: no surrogates, no overlong forms,
/// nothing above U+10FFFF); 0 where there is none.
std::size_t utf8_length(std::string_view text);

/// Appends `text` to `out` with each byte that belongs to no valid character replaced by U+FFFD.
/// Returns the number of bytes replaced.
std::size_t append_repaired(std::string_view text, std::string& out);

}  // namespace nsa
