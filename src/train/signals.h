#pragma once

// SignalWatch: signals become flags that the training loop reads between pieces of work.

#include <string>
#include <vector>

#include "config/config.h"

namespace nsa {

/// One at a time in a process: signal actions belong to the process.
class SignalWatch {
 public:
  /// Catches the signals of both lists. Throws Error (code 2) for a name it does not know.
  explicit SignalWatch(const SignalsConfig& config);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  /// Whether a signal of the stop list has come since construction.
  bool stop_requested() const;
  /// Its name, for messages; empty when there was none.
  std::string stop_name() const;
  /// Whether a signal of the save list has come since the last call.
  bool take_save_request();
  /// Default actions again: after the last save another signal may end the process at once.
  void release();

 private:
  std::vector<int> caught_;
};

}  // namespace nsa
