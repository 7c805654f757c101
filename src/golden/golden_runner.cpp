#include "golden/golden_runner.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "core/error.h"
#include "golden/golden_run.h"

namespace nsa {

GoldenResult run_golden(Backend& backend, const GoldenCase& golden, DType dtype) {
  if (!golden.one_rate) {
    return {.name = golden.name,
            .dtype = dtype,
            .outcome = GoldenOutcome::kSkip,
            .detail = "documents of differing compression rates are not offered"};
  }
  return GoldenRun(backend, golden, dtype).run();
}

std::vector<std::string> golden_files(const std::vector<std::string>& paths) {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status)) fail_data("there is no file or folder '" + path + "'");
    if (!fs::is_directory(status)) {
      files.push_back(path);
      continue;
    }
    std::vector<std::string> inside;
    for (const auto& entry : fs::directory_iterator(path, error)) {
      if (entry.path().extension() == ".safetensors") inside.push_back(entry.path().string());
    }
    if (error) fail_data("cannot list the folder '" + path + "': " + error.message());
    std::sort(inside.begin(), inside.end());
    files.insert(files.end(), inside.begin(), inside.end());
  }
  return files;
}

}  // namespace nsa
