#include "train/version.h"

namespace nsa {

std::string library_version() {
  return NSA_VERSION;
}

std::string full_version() {
  const std::string commit = NSA_COMMIT;
  return library_version() + " (" + (commit.empty() ? "" : commit + ", ") + NSA_BACKENDS + ")";
}

}  // namespace nsa
