#include "data/globs.h"

#include <algorithm>
#include <filesystem>
#include <glob.h>
#include <numeric>
#include <utility>

#include "core/error.h"

namespace nsa {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kNamesListed = 5;

/// Levenshtein distance.
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above + 1, row[j - 1] + 1, replaced});
      diagonal = above;
    }
  }
  return row[b.size()];
}

[[noreturn]] void fail_no_match(const std::string& pattern) {
  fs::path folder = fs::path(pattern).parent_path();
  if (folder.empty()) folder = ".";
  std::error_code error;
  const bool is_pattern = folder.string().find_first_of("*?[{~") != std::string::npos;
  if (!is_pattern && !fs::is_directory(folder, error)) {
    fail_data(pattern + ": names no file, because the folder " + folder.string() +
              " does not exist");
  }
  const std::string wanted = fs::path(pattern).filename().string();
  std::vector<std::pair<std::size_t, std::string>> names;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    names.emplace_back(edit_distance(wanted, name), name);
  }
  if (names.empty()) fail_data(pattern + ": names no file; " + folder.string() + " has none");
  std::sort(names.begin(), names.end());
  std::string nearest;
  for (std::size_t i = 0; i < std::min(kNamesListed, names.size()); ++i) {
    nearest += (i == 0 ? "" : ", ") + names[i].second;
  }
  fail_data(pattern + ": names no file; the nearest names in " + folder.string() + " are " +
            nearest);
}

}  // namespace

std::vector<std::string> expand_glob(const std::string& pattern) {
  if (pattern.empty()) fail_data("a file name is empty; name a file, or a glob of files");
  // A file whose name holds glob characters is meant as it stands.
  std::error_code error;
  if (fs::exists(pattern, error)) return {pattern};
  glob_t found = {};
  const int status = ::glob(pattern.c_str(), GLOB_BRACE | GLOB_TILDE, nullptr, &found);
  std::vector<std::string> paths;
  if (status == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (paths.empty()) fail_no_match(pattern);
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace nsa
