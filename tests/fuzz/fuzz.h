#pragma once

// What the fuzz targets share. A target takes bytes as a user's file could hold them and calls the
// code that reads such files: an Error with the exit code of that kind of file is the one refusal
// allowed. Every other exception, a sanitizer's report, a hang and a huge allocation are faults.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/error.h"
#include "support/temp_folder.h"

namespace nsa::test {

/// Runs `body`, in which an Error of another kind than `expected` (a broken contract of our own,
/// for one) ends the run as a crash would.
template <class Body>
void refuse_or_read(ExitCode expected, const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    if (error.code() != expected) std::abort();
  }
}

/// For what must hold of any input.
inline void demand(bool holds) {
  if (!holds) std::abort();
}

inline std::string_view as_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// One file name of this process, written anew for each input.
class InputFile {
 public:
  explicit InputFile(const std::string& name) : path_(folder_ / name) {}
  std::string write(std::string_view bytes) const {
    spill(path_, std::string(bytes));
    return path_.string();
  }

 private:
  TempFolder folder_;
  std::filesystem::path path_;
};

}  // namespace nsa::test
