#pragma once

// What a call throws.

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/error.h"

namespace nsa::test {

/// Calls `body`, which must throw an Error with `code` whose message holds every part and no C++
/// file name.
inline void expect_error(ExitCode code, const std::vector<std::string>& parts,
                         const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << what;
    for (const std::string& part : parts) {
      EXPECT_NE(what.find(part), std::string::npos) << "no \"" << part << "\" in: " << what;
    }
    EXPECT_EQ(what.find(".cpp"), std::string::npos) << what;
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    return;
  }
  ADD_FAILURE() << "nothing was thrown";
}

}  // namespace nsa::test
