#pragma once

// How failures are told: one exception type that carries the exit code of the program.

#include <stdexcept>
#include <string>

namespace nsa {

/// What the program returns to its caller (README, "Exit codes").
enum class ExitCode : int {
  kDone = 0,
  kRuntime = 1,      ///< out of memory, a broken contract, anything not named below
  kConfig = 2,       ///< usage, configuration, impossible geometry, no such device
  kData = 3,         ///< unreadable, malformed or too little data
  kCheckpoint = 4,   ///< nothing to resume from, damaged or unwritable checkpoint
  kNonFinite = 5,    ///< loss or gradient is not finite
  kInterrupted = 75  ///< stopped by a signal or a limit after a good save
};

/// Every failure that a user can meet. `what()` says what was wrong, where, what was found and
/// wanted, and what to do, in one sentence.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what, ExitCode code = ExitCode::kRuntime)
      : std::runtime_error(what), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

/// Where a check stands. (Not std::source_location: clang-tidy 14 has none. Not default member
/// initialisers: nvcc 13.0 aborts on them.)
struct Location {
  const char* file;
  int line;
  static constexpr Location current(const char* file = __builtin_FILE(),
                                    int line = __builtin_LINE()) {
    return {file, line};
  }
};

/// A broken programming contract: names the file and line of the check.
[[noreturn]] inline void fail(const std::string& what, Location at = Location::current()) {
  throw Error(what + " (" + at.file + ":" + std::to_string(at.line) + ")");
}

/// Throws unless `ok`. For contracts between our own parts, never for what a user can cause.
inline void check(bool ok, const char* what, Location at = Location::current()) {
  if (!ok) fail(what, at);
}

// Failures that a user can cause: the message stands alone, without C++ file and line.
[[noreturn]] inline void fail_config(const std::string& what) {
  throw Error(what, ExitCode::kConfig);
}
[[noreturn]] inline void fail_data(const std::string& what) {
  throw Error(what, ExitCode::kData);
}
[[noreturn]] inline void fail_checkpoint(const std::string& what) {
  throw Error(what, ExitCode::kCheckpoint);
}
[[noreturn]] inline void fail_runtime(const std::string& what) {
  throw Error(what, ExitCode::kRuntime);
}

}  // namespace nsa
