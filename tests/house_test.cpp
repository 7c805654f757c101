// The rules of the house, checked against the files as they stand (see README, "Layers").

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace nsa {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = NSA_SOURCE_DIR;

// A folder may include itself and what stands in its row; nothing else.
const std::map<std::string, std::set<std::string>> kMayInclude = {
    {"core", {}},
    {"ops", {"core"}},
    {"golden", {"core", "ops"}},
    {"config", {"core", "ops"}},
    {"data", {"core", "config"}},
    {"params", {"core", "config", "ops"}},
    {"model", {"core", "config", "ops", "params"}},
    {"train", {"core", "config", "data", "ops", "params", "model"}},
    {"kernels", {"core", "ops"}},
};

// A header that only some files may include, and the files (by prefix) that may.
const std::map<std::string, std::vector<std::string>> kReservedHeaders = {
    {"<yaml-cpp/", {"config/"}},
    {"<sentencepiece", {"data/tokenizer"}},
    {"<spdlog/", {"core/log", "core/format"}},
    {"<cblas", {"ops/cpu/matmul.cpp"}},
    {"<CLI11", {"command_line.h", "main.cpp", "tokenize_main.cpp", "golden_main.cpp"}},
    {"<CLI/", {"command_line.h", "main.cpp", "tokenize_main.cpp", "golden_main.cpp"}},
    {"<zlib", {"data/", "core/checksum.cpp"}},
    {"<zstd", {"data/"}},
    {"<nlohmann/", {"core/safetensors.cpp", "data/", "golden/", "train/"}},
    {"<cuda", {"kernels/"}},
    {"<cublas", {"kernels/"}},
    {"<nccl", {"kernels/"}},
    {"<nvtx3", {"kernels/"}},
};

struct SourceFile {
  fs::path path;
  std::string name;  // "ops/norm.h", or "kernels/norm.cu"
  std::vector<std::string> lines;
};

std::vector<SourceFile> source_files(const std::vector<std::string>& tops) {
  static const std::set<std::string> suffixes = {".h", ".cpp", ".cuh", ".cu", ".sh", ".py"};
  std::vector<SourceFile> files;
  for (const std::string& top : tops) {
    const fs::path base = top == "src" ? kRoot / "src" : kRoot;
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / top)) {
      if (!entry.is_regular_file() || !suffixes.contains(entry.path().extension().string())) {
        continue;
      }
      SourceFile file{entry.path(), fs::relative(entry.path(), base).string(), {}};
      std::ifstream in(entry.path());
      for (std::string line; std::getline(in, line);) file.lines.push_back(line);
      files.push_back(std::move(file));
    }
  }
  return files;
}

std::string folder_of(const std::string& name) {
  return name.substr(0, name.find('/'));
}

TEST(House, EveryIncludeRunsDown) {
  for (const SourceFile& file : source_files({"src", "kernels"})) {
    const auto row = kMayInclude.find(folder_of(file.name));
    if (row == kMayInclude.end()) {
      EXPECT_EQ(file.name.find('/'), std::string::npos) << file.name << " has no row in the table";
      continue;  // the mains, at the top, may include all
    }
    for (const std::string& line : file.lines) {
      if (line.rfind("#include \"", 0) != 0) continue;
      const std::string target = line.substr(10, line.find('"', 10) - 10);
      EXPECT_TRUE(folder_of(target) == row->first || row->second.contains(folder_of(target)))
          << file.name << " may not include " << target;
    }
  }
}

TEST(House, LibrariesStayInTheirRooms) {
  for (const SourceFile& file : source_files({"src", "kernels"})) {
    for (const std::string& line : file.lines) {
      if (line.rfind("#include <", 0) != 0) continue;
      const std::string target = line.substr(9);
      for (const auto& [header, owners] : kReservedHeaders) {
        if (target.rfind(header, 0) != 0) continue;
        EXPECT_TRUE(
            std::any_of(owners.begin(), owners.end(),
                        [&](const std::string& owner) { return file.name.rfind(owner, 0) == 0; }))
            << file.name << " may not include " << target;
      }
    }
  }
}

TEST(House, NoFileIsOver500Lines) {
  for (const SourceFile& file : source_files({"src", "kernels", "tests", "scripts"})) {
    EXPECT_LE(file.lines.size(), 500U) << file.name;
  }
}

TEST(House, NoBackendIsChosenByThePreprocessor) {
  for (const SourceFile& file : source_files({"src"})) {
    if (file.name == "ops/cpu/matmul.cpp") continue;  // asks for the processor, not the backend
    for (const std::string& line : file.lines) {
      EXPECT_FALSE(line.rfind("#if", 0) == 0) << file.name << ": " << line;
    }
  }
}

// Every source file has a test of its name, or stands here with the reason.
TEST(House, EverySourceFileHasATest) {
  static const std::map<std::string, std::string> tested_elsewhere = {
      {"config/codec.cpp", "values: reading_test, bad_values_test"},
      {"config/parse.cpp", "the config tests, by subject"},
      {"config/presets.cpp", "reading_test, print_test"},
      {"config/resolve.cpp", "the config tests, by subject"},
      {"config/schema.cpp", "print_test: the reference"},
      {"config/schema_model.cpp", "print_test: the reference"},
      {"config/schema_run.cpp", "print_test: the reference"},
      {"config/schema_stages.cpp", "stages_test"},
      {"config/schema_training.cpp", "print_test: the reference"},
      {"config/suggest.cpp", "bad_keys_test"},
      {"config/yaml_reader.cpp", "bad_yaml_test"},
      {"core/cpu_device.cpp", "arena_test"},
      {"core/format.cpp", "fmt's own functions"},
      {"core/log.cpp", "three lines around spdlog"},
      {"data/llmc_writer.cpp", "llmc_shard_test"},
      {"data/megatron_writer.cpp", "megatron_shard_test"},
      {"data/nsa_writer.cpp", "nsa_shard_test"},
      {"data/shard_format.cpp", "token_shard_test, nsa_tokenize_test"},
      {"data/shard_writer.cpp", "the tests of each shard format"},
      {"ops/checks_attention.cpp", "the tests of each op"},
      {"ops/checks_dense.cpp", "the tests of each op"},
      {"ops/no_cuda.cpp", "backend_test"},
      {"ops/cpu/attention_backward.cpp", "the tests of each attention"},
      {"ops/cpu/attention_core.cpp", "the tests of each attention"},
      {"ops/cpu/cpu_ops.cpp", "backend_test, scratch_test"},
      {"ops/cpu/selected_backward.cpp", "selected_attention_test"},
      {"train/evaluator.cpp", "promises"},
      {"train/modes.cpp", "promises"},
      {"train/run_data.cpp", "promises"},
      {"train/trainer.cpp", "promises"},
      {"train/trainer_duties.cpp", "promises"},
      {"train/trainer_start.cpp", "promises"},
      {"train/version.cpp", "promises"},
      {"train/workshop.cpp", "promises"},
  };
  std::set<std::string> tests;
  for (const SourceFile& file : source_files({"tests"})) {
    tests.insert(file.path.stem().string());
  }
  for (const SourceFile& file : source_files({"src"})) {
    if (file.path.extension() != ".cpp" || file.name.find('/') == std::string::npos) continue;
    if (tested_elsewhere.contains(file.name)) continue;
    EXPECT_TRUE(tests.contains(file.path.stem().string() + "_test")) << file.name;
  }
}

}  // namespace
}  // namespace nsa
