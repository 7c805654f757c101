// nsa_golden: golden files through the ops, one line a file and element type.

#include <cstdio>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "command_line.h"
#include "core/error.h"
#include "core/log.h"
#include "golden/golden_runner.h"

namespace {

struct Options {
  std::vector<std::string> paths;
  std::string device = "cpu";
  std::string kernels = "auto";
  std::string dtype;  ///< empty: all that the device offers
};

std::vector<nsa::DType> element_types(const Options& options) {
  const bool on_cpu = options.device == "cpu";
  std::vector<nsa::DType> offered = {nsa::DType::kF32,
                                     on_cpu ? nsa::DType::kF64 : nsa::DType::kBF16};
  if (options.dtype.empty()) return offered;
  for (const nsa::DType dtype : offered) {
    if (options.dtype == nsa::name_of(dtype)) return {dtype};
  }
  nsa::fail_config("--dtype is '" + options.dtype + "'; on " + options.device +
                   " it must be fp32 or " + nsa::name_of(offered.back()));
}

/// The exit code: that of the first unreadable file, else 1 where a comparison failed.
int run(const Options& options) {
  const std::vector<nsa::DType> types = element_types(options);
  const std::vector<std::string> files = nsa::golden_files(options.paths);
  if (files.empty()) nsa::fail_config("the folders given hold no .safetensors file");
  nsa::Backend backend = nsa::make_backend(
      options.device, 0,
      options.kernels == "general" ? nsa::KernelChoice::kGeneral : nsa::KernelChoice::kAuto);
  int code = 0;
  for (const std::string& file : files) {
    try {
      const nsa::GoldenCase golden = nsa::read_golden_case(file);
      for (const nsa::DType type : types) {
        const nsa::GoldenResult result = nsa::run_golden(backend, golden, type);
        std::printf("%s\n", nsa::describe(result).c_str());
        if (result.outcome == nsa::GoldenOutcome::kFail && code == 0) code = 1;
      }
    } catch (const nsa::Error& error) {
      // The files after it are still worth a line each.
      nsa::log::error(error.what());
      if (code <= 1) code = static_cast<int>(error.code());
    }
  }
  return code;
}

int run_command_line(int argc, char** argv) {
  Options options;
  CLI::App app("Golden files through the ops: forward and every gradient", "nsa_golden");
  app.add_option("PATH", options.paths, "golden files, or folders of *.safetensors")->required();
  app.add_option("--device", options.device, "cpu, cuda or cuda:N")->capture_default_str();
  app.add_option("--kernels", options.kernels,
                 "on cuda: auto, or general for those that every GPU from sm_80 on runs")
      ->check(CLI::IsMember({"auto", "general"}))
      ->capture_default_str();
  app.add_option("--dtype", options.dtype,
                 "fp32, and fp64 on the cpu or bf16 on cuda (default: both)");
  if (!nsa::read_command_line(app, argc, argv)) return 0;
  const int code = run(options);
  if (code == 0) nsa::check_standard_output();
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  return nsa::run_program([&] { return run_command_line(argc, argv); });
}
