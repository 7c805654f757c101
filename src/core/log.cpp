#include "core/log.h"

#include <memory>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

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

}  // namespace

void info(const std::string& line) {
  out().info(line);
}
void warn(const std::string& line) {
  ++warning_count;
  err().warn(line);
}
void error(const std::string& line) {
  err().error(line);
}
int warnings() {
  return warning_count;
}

}  // namespace nsa::log
