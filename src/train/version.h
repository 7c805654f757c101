#pragma once

// What this build calls itself.

#include <string>

namespace nsa {

/// "0.1.0"
std::string library_version();
/// "0.1.0 (75ac269, cpu)": with the commit it was built from where that is known, and the backends.
std::string full_version();

}  // namespace nsa
