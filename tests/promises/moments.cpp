#include "promises/moments.h"

#include <chrono>
#include <csignal>
#include <fstream>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <utility>

namespace nsa::test {
namespace fs = std::filesystem;
namespace {

/// Stops the child and waits until it stands. False when it ended instead.
bool stop(int process) {
  kill(process, SIGSTOP);
  siginfo_t state = {};
  if (waitid(P_PID, static_cast<id_t>(process), &state, WSTOPPED | WEXITED | WNOWAIT) != 0) {
    return false;
  }
  return state.si_code == CLD_STOPPED;
}

}  // namespace

bool signal_at(int process, const std::atomic<bool>& ended, const std::function<bool()>& is_now,
               const std::vector<int>& signals) {
  while (!ended) {
    if (!is_now()) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      continue;
    }
    if (!stop(process)) return false;
    const bool still = is_now();
    if (still) {
      for (const int signal : signals) kill(process, signal);
    }
    kill(process, SIGCONT);
    if (still) return true;
  }
  return false;
}

Watch signals_when(std::function<bool(int process)> is_now, std::vector<int> signals,
                   bool& caught) {
  return {.beside = [is_now = std::move(is_now), signals = std::move(signals), &caught](
                        int process, const std::atomic<bool>& ended) {
    caught = signal_at(
        process, ended, [&] { return is_now(process); }, signals);
  }};
}

std::string half_a_save(const fs::path& checkpoints) {
  std::error_code error;
  fs::directory_iterator entry(checkpoints, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const fs::path extension = entry->path().extension();
    if (extension != ".tmp" && extension != ".old") continue;
    const auto touched = fs::last_write_time(entry->path(), error);
    return entry->path().filename().string() + "@" +
           std::to_string(touched.time_since_epoch().count());
  }
  return "";
}

bool has_half_a_save(const fs::path& checkpoints) {
  return !half_a_save(checkpoints).empty();
}

bool handles(int process, int signal) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  const std::string key = "SigCgt:";
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(key, 0) != 0) continue;
    const std::uint64_t caught = std::stoull(line.substr(key.size()), nullptr, 16);
    return (caught >> static_cast<unsigned>(signal - 1) & 1U) != 0;
  }
  return false;
}

std::string last_line(const fs::path& path) {
  std::ifstream in(path);
  std::string last;
  for (std::string line; std::getline(in, line);) last = line;
  return last;
}

}  // namespace nsa::test
