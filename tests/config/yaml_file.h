#pragma once

// Configurations of tests: YAML text to a Config, or to the message of its refusal.

#include <string>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "config/parse.h"
#include "core/error.h"
#include "support/temp_folder.h"

namespace nsa {

/// A folder of its own, gone at the end.
class YamlFolder {
 public:
  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    test::spill(folder_ / name, text);
    return file(name);
  }

 private:
  test::TempFolder folder_;
};

/// What every configuration needs.
inline const char* const kNeeded = "data: {train: [/x.bin]}\n";

/// Reads `text` behind what every configuration needs (one line).
inline Config config_of(const std::string& text, const std::vector<std::string>& overrides = {},
                        std::vector<std::string>* warnings = nullptr) {
  const YamlFolder folder;
  return parse_config(folder.write("run.yaml", kNeeded + text), overrides, warnings);
}

/// The refusal of `text` as it stands, with the folder taken out of the message; fails unless it
/// ends with code 2.
inline std::string refusal_of_file(const std::string& text,
                                   const std::vector<std::string>& overrides = {}) {
  const YamlFolder folder;
  const std::string path = folder.write("run.yaml", text);
  try {
    parse_config(path, overrides, nullptr);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kConfig);
    std::string message = error.what();
    const std::string prefix = path.substr(0, path.size() - std::string("run.yaml").size());
    for (std::size_t at = message.find(prefix); at != std::string::npos;
         at = message.find(prefix)) {
      message.erase(at, prefix.size());
    }
    return message;
  }
  ADD_FAILURE() << "accepted: " << text;
  return "";
}

/// The same behind what every configuration needs: `text` begins at line 2.
inline std::string refusal_of(const std::string& text,
                              const std::vector<std::string>& overrides = {}) {
  return refusal_of_file(kNeeded + text, overrides);
}

/// A text, and what the message of its refusal is.
struct BadCase {
  std::string name;
  std::string text;
  std::string message;
};

inline std::string case_name(const testing::TestParamInfo<BadCase>& info) {
  return info.param.name;
}

}  // namespace nsa
