#include "core/standard_streams.h"

#include <csignal>
#include <fcntl.h>
#include <unistd.h>

namespace nsa {

void hold_standard_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    // open() takes the lowest free number, which is this one: those below it are open by now.
    if (::fcntl(stream, F_GETFD) < 0) static_cast<void>(::open("/dev/null", O_RDWR));
  }
  std::signal(SIGPIPE, SIG_IGN);
}

}  // namespace nsa
