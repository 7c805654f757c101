#pragma once

// The one logger. info: a line a step or an event; warn: the run goes on, but you should know;
// error: it ends. Kernels, ops and model never log.

#include <string>

namespace nsa::log {

void info(const std::string& line);
void warn(const std::string& line);
void error(const std::string& line);

/// The number of warnings so far, for the start-up report.
int warnings();

}  // namespace nsa::log
