#pragma once

// What all programs share: how the command line is read, and how they end.

#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include <CLI/CLI.hpp>

#include "core/error.h"
#include "core/log.h"
#include "core/standard_streams.h"

namespace nsa {

/// Reads the command line into what `app`, which bears the program's name, describes. False: it
/// asked for --help, which is printed. Throws Error: code 2 for what cannot be read, code 1 where
/// the help did not arrive.
inline bool read_command_line(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
    return true;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) {
      fail_config(std::string(error.what()) + "; " + app.get_name() + " --help lists everything");
    }
    app.exit(error);
    check_standard_output();
    return false;
  }
}

/// Runs a program: the exit code is what `body` returns, or that of what it throws, whose sentence
/// goes to stderr.
template <class Body>
int run_program(const Body& body) {
  hold_standard_streams();
  try {
    return static_cast<int>(body());
  } catch (const Error& error) {
    log::error(error.what());
    return static_cast<int>(error.code());
  } catch (const std::bad_alloc&) {
    // Not through the log, which would need memory.
    static_cast<void>(
        std::fputs("error: out of memory: neither the machine nor the limits of this process "
                   "(ulimit -v, its control group) have more to give; free some memory, or ask "
                   "for less\n",
                   stderr));
  } catch (const std::exception& error) {
    log::error(error.what());
  }
  return static_cast<int>(ExitCode::kRuntime);
}

}  // namespace nsa
