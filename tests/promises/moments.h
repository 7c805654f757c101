#pragma once

// Catching a running child at a chosen moment of its work, however fast that passes.

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "promises/process.h"

namespace nsa::test {

/// Looks at a running child without pause. When `is_now` holds, stops the child, looks once more,
/// and if it still holds sends the signals in their order and lets the child go on; else it lets it
/// go on and looks further. Returns whether the moment was caught before the child ended.
bool signal_at(int process, const std::atomic<bool>& ended, const std::function<bool()>& is_now,
               const std::vector<int>& signals);

/// A Watch that does this beside the child and says in `caught` how it went.
Watch signals_when(std::function<bool(int process)> is_now, std::vector<int> signals, bool& caught);

/// The save that is being written in this folder of checkpoints or was cut off there: its name and
/// when it was last touched; empty when there is none.
std::string half_a_save(const std::filesystem::path& checkpoints);
bool has_half_a_save(const std::filesystem::path& checkpoints);
/// Whether the process has a handler for `signal`.
bool handles(int process, int signal);
/// The last line of a file that may be growing; empty when there is none.
std::string last_line(const std::filesystem::path& path);

}  // namespace nsa::test
