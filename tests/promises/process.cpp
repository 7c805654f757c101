#include "promises/process.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "core/error.h"

namespace nsa::test {
namespace {

[[noreturn]] void become(const std::vector<std::string>& arguments, const Watch& watch, int out,
                         int err) {
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  if (watch.file_size_limit > 0) {
    const auto limit = static_cast<rlim_t>(watch.file_size_limit);
    const rlimit sizes{.rlim_cur = limit, .rlim_max = limit};
    setrlimit(RLIMIT_FSIZE, &sizes);
  }
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(127);
}

std::string read_lines(int pipe, int process, const Watch& watch) {
  std::string all;
  std::size_t line_begin = 0;
  std::array<char, 4096> piece{};
  for (ssize_t got = 0; (got = read(pipe, piece.data(), piece.size())) > 0;) {
    all.append(piece.data(), static_cast<std::size_t>(got));
    for (std::size_t end = 0; (end = all.find('\n', line_begin)) != std::string::npos;) {
      if (watch.on_line) watch.on_line(all.substr(line_begin, end - line_begin), process);
      line_begin = end + 1;
    }
  }
  return all;
}

std::string read_all(std::FILE* file) {
  std::string all;
  std::array<char, 4096> piece{};
  std::rewind(file);
  for (std::size_t got = 0; (got = std::fread(piece.data(), 1, piece.size(), file)) > 0;) {
    all.append(piece.data(), got);
  }
  return all;
}

}  // namespace

Outcome run_program(const std::vector<std::string>& arguments, const Watch& watch) {
  std::array<int, 2> out{};
  check(pipe2(out.data(), O_CLOEXEC) == 0, "run_program: no pipe");
  std::FILE* err = std::tmpfile();
  check(err != nullptr, "run_program: no temporary file");
  const pid_t process = fork();
  check(process >= 0, "run_program: no process");
  if (process == 0) become(arguments, watch, out[1], fileno(err));
  close(out[1]);
  Outcome outcome;
  std::atomic<bool> ended = false;
  std::thread beside;
  if (watch.beside) beside = std::thread([&] { watch.beside(process, ended); });
  outcome.out = read_lines(out[0], process, watch);
  close(out[0]);
  ended = true;
  if (beside.joinable()) beside.join();
  int status = 0;
  waitpid(process, &status, 0);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.err = read_all(err);
  std::fclose(err);
  return outcome;
}

}  // namespace nsa::test
