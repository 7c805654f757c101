#include "core/log.h"

#include <memory>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "core/format.h"

namespace nsa::log {
namespace {

int warning_count = 0;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

// info goes to stdout, as a program's output; warnings and errors go to stderr.
spdlog::logger& out() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto made =
        std::make_shared<spdlog::logger>("out", std::make_shared<spdlog::sinks::stdout_sink_mt>());
    made->set_pattern("%v");
    made->flush_on(spdlog::level::info);
    return made;
  }();
  return *logger;
}

spdlog::logger& err() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto made =
        std::make_shared<spdlog::logger>("err", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%l: %v");
    made->flush_on(spdlog::level::warn);
    return made;
  }();
  return *logger;
}

/// A message quotes what it found, which may hold line breaks and terminal codes: one message
/// stays one line of plain characters.
std::string plain(const std::string& line) {
  constexpr unsigned char kDelete = 0x7f;
  std::string text;
  for (const char c : line) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      text += "\\n";
    } else if (byte < ' ' || byte == kDelete) {
      text += fmt::format("\\x{:02x}", byte);
    } else {
      text += c;
    }
  }
  return text;
}

}  // namespace

void info(const std::string& line) {
  out().info(line);
}
void warn(const std::string& line) {
  ++warning_count;
  err().warn(plain(line));
}
void error(const std::string& line) {
  err().error(plain(line));
}
int warnings() {
  return warning_count;
}

}  // namespace nsa::log
