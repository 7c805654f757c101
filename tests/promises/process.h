#pragma once

// Runs a program as a child and lets a test watch it.

#include <atomic>
#include <functional>
#include <string>
#include <vector>

namespace nsa::test {

struct Outcome {
  int code = -1;    ///< exit status; 128 + N when signal N ended it
  std::string out;  ///< stdout
  std::string err;  ///< stderr
};

/// What a test may do to a running child.
struct Watch {
  /// Called for each line of stdout as it comes, with the child's process id.
  std::function<void(const std::string& line, int process)> on_line = {};
  /// Largest file the child may write, in bytes; 0: no limit.
  long file_size_limit = 0;
  /// Runs on a thread beside the child, with its process id, which stays the child's until this
  /// returns; it has to return soon after `ended` turns true: the child has closed its stdout.
  std::function<void(int process, const std::atomic<bool>& ended)> beside = {};
};

/// Waits for the child's end. `arguments[0]` is the program's path.
Outcome run_program(const std::vector<std::string>& arguments, const Watch& watch = {});

}  // namespace nsa::test
