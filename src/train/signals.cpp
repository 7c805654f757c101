#include "train/signals.h"

#include <array>
#include <atomic>
#include <csignal>
#include <utility>

#include "core/error.h"

namespace nsa {
namespace {

constexpr std::array<std::pair<const char*, int>, 6> kSignals = {{{"TERM", SIGTERM},
                                                                  {"INT", SIGINT},
                                                                  {"HUP", SIGHUP},
                                                                  {"USR1", SIGUSR1},
                                                                  {"USR2", SIGUSR2},
                                                                  {"CONT", SIGCONT}}};

// Handlers can reach nothing else than globals.
std::atomic<int> stop_signal{0};      // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<bool> save_asked{false};  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

extern "C" void on_stop(int signal) {
  stop_signal.store(signal);
}
extern "C" void on_save(int /*signal*/) {
  save_asked.store(true);
}

int number_of(std::string name) {
  if (name.rfind("SIG", 0) == 0) name.erase(0, 3);
  std::string known;
  for (const auto& [text, number] : kSignals) {
    if (name == text) return number;
    known += (known.empty() ? "" : ", ") + std::string(text);
  }
  fail_config("signals: no signal is called '" + name + "'; known are " + known);
}

void set_action(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;  // a save in flight must not see its writes fail
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

}  // namespace

SignalWatch::SignalWatch(const SignalsConfig& config) {
  std::vector<std::pair<int, void (*)(int)>> actions;
  for (const std::string& name : config.save) actions.emplace_back(number_of(name), on_save);
  for (const std::string& name : config.stop) actions.emplace_back(number_of(name), on_stop);
  stop_signal.store(0);
  save_asked.store(false);
  for (const auto& [signal, handler] : actions) {
    set_action(signal, handler);
    caught_.push_back(signal);
  }
}

SignalWatch::~SignalWatch() {
  release();
}

bool SignalWatch::stop_requested() const {
  return stop_signal.load() != 0;
}

std::string SignalWatch::stop_name() const {
  const int signal = stop_signal.load();
  for (const auto& [text, number] : kSignals) {
    if (signal == number) return text;
  }
  return "";
}

bool SignalWatch::take_save_request() {
  return save_asked.exchange(false);
}

void SignalWatch::release() {
  for (const int signal : caught_) set_action(signal, SIG_DFL);
  caught_.clear();
}

}  // namespace nsa
