// Writes the first inputs of every fuzz target, one folder each, and a dictionary of the
// configuration's words: make_corpus FOLDER. Sound files come from the project's own writers; what
// is wrong with the others, mutations find.

#include <cctype>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "config/parse.h"
#include "data/foreign_bytes.h"
#include "data/shards.h"
#include "fuzz/fuzz.h"
#include "train/manifest.h"

namespace nsa::test {
namespace {

namespace fs = std::filesystem;

/// The words of `text`, each once: mutations put them together anew.
void add_words(const std::string& text, std::set<std::string>& dictionary) {
  std::string word;
  for (const char c : text + " ") {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') {
      word += c;
    } else if (!word.empty()) {
      dictionary.insert(std::exchange(word, ""));
    }
  }
}

void write_dictionary(const fs::path& path, const std::set<std::string>& words) {
  std::string lines;
  for (const std::string& word : words) lines += "\"" + word + "\"\n";
  spill(path, lines);
}

const std::set<std::string>& json_words() {
  static const std::set<std::string> words = {"1e300",
                                              "-1",
                                              "1.5",
                                              "18446744073709551616",
                                              "9223372036854775808",
                                              "null",
                                              "true",
                                              "[[",
                                              "{}",
                                              "\\\"",
                                              ",",
                                              ":",
                                              "\\\\u0000",
                                              "\\\\ud800"};
  return words;
}

/// The folder of one target; numbers its files.
class Folder {
 public:
  explicit Folder(fs::path path) : path_(std::move(path)) { fs::create_directories(path_); }
  void add(const std::string& bytes) { spill(path_ / std::to_string(count_++), bytes); }
  std::string next_path() { return (path_ / std::to_string(count_++)).string(); }

 private:
  fs::path path_;
  int count_ = 0;
};

const std::vector<Ids>& documents() {
  static const std::vector<Ids> made = random_documents(3, 1000, {5, 1, 30, 8, 17});
  return made;
}

void write_shards(const fs::path& root) {
  Folder folder(root / "shard");
  for (const ShardFormat format : {ShardFormat::kNsa, ShardFormat::kLlmc}) {
    for (const std::int64_t vocabulary : {std::int64_t{1000}, std::int64_t{100000}}) {
      const ShardLabel label{.vocab_size = vocabulary, .tokenizer = 7, .eos_id = 1};
      write_shard(folder.next_path(), documents(), label, format);
    }
    write_shard(folder.next_path(), {}, {.vocab_size = 1000}, format);
  }
}

void write_indices(const fs::path& root) {
  Folder folder(root / "megatron");
  const TempFolder temporary;
  const std::string path = (temporary / "pair.bin").string();
  for (const std::int64_t vocabulary : {std::int64_t{1000}, std::int64_t{100000}}) {
    write_shard(path, documents(), {.vocab_size = vocabulary}, ShardFormat::kMegatron);
    folder.add(slurp(temporary / "pair.idx"));
  }
}

void write_text(const fs::path& root) {
  Folder folder(root / "jsonl");
  folder.add(
      "{\"text\": \"one\"}\r\n\n{\"id\": 7, \"text\": \"two \\u2028 \\u0000 \\\"\\ud83d\\ude00\"}");
  folder.add(
      "\xEF\xBB\xBF{\"text\": \"\xE2\x82\xAC \xFF\xC0\x80 \xED\xA0\x80\"}\n[1, 2]\n{\"text\": "
      "3}\n");
  folder.add("{\"a\": [{\"b\": [[]]}], \"text\": \"\", \"text\": \"again\"}\n{\"other\": null}\n{");
}

void write_tensors(const fs::path& root) {
  Folder folder(root / "safetensors");
  const std::string header =
      R"({"__metadata__":{"kind":"test"},"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"I64","shape":[2],"data_offsets":[8,24]},)"
      R"("c":{"dtype":"F64","shape":[],"data_offsets":[24,32]},)"
      R"("d":{"dtype":"I32","shape":[0,4],"data_offsets":[32,32]}})";
  folder.add(header);
  std::string file;
  append<std::uint64_t>(file, header.size());
  folder.add(file + header + std::string(32, '\2'));
  write_dictionary(root / "safetensors.dict", json_words());
}

void write_manifests(const fs::path& root) {
  Folder folder(root / "manifest");
  Manifest manifest;
  manifest.library_version = "0.1.0";
  manifest.layout = 5;
  folder.add(to_json(manifest));
  manifest.state.last_validation = Validation{.step = 3, .loss = 2.5, .tokens = 99};
  manifest.state.config_yaml = "run: {name: \"a\\nb\"}\n";
  manifest.files = {{.name = "rank_00000.bin", .bytes = 4096, .checksum = 77}};
  manifest.ranges = {{.bucket = "block.0",
                      .begin = 64,
                      .end = 128,
                      .file = "rank_00000.bin",
                      .master = 0,
                      .m = 512,
                      .v = 1024}};
  manifest.parameters = {{.name = "blocks.0.attn.q", .shape = {8, 16}, .updates = 12}};
  folder.add(to_json(manifest));
  write_dictionary(root / "manifest.dict", json_words());
}

/// Each section by itself: short inputs are tried faster than whole configurations.
void add_sections(const std::string& printed, Folder& folder) {
  std::istringstream lines(printed);
  std::string section;
  const auto flush = [&] {
    const bool is_data = section.starts_with("data:");
    if (!section.empty()) folder.add((is_data ? "" : "data: {train: [a.bin]}\n") + section);
    section.clear();
  };
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(' ')) flush();
    section += line + "\n";
  }
  flush();
}

void write_configs(const fs::path& root) {
  Folder folder(root / "config");
  std::string words;
  for (const auto& entry : fs::directory_iterator(fs::path(NSA_SOURCE_DIR) / "configs")) {
    folder.add(slurp(entry.path()));
    const std::string printed = print_config(parse_config(entry.path().string(), {}, nullptr));
    add_sections(printed, folder);
    words += printed;
  }
  const std::string small = "data: {train: [a.bin]}\n";
  folder.add(small + std::string("\0train.steps=5", 14));
  folder.add(small +
             "model: {preset: tiny, vocab_size: 64K}\ntrain: {tokens: 1B, seq_len: 4096}\n");
  folder.add(small + "x: &a [1, 2]\ny: *a\n");
  folder.add(small + "run: {name: \"${env:HOME}\"}\nschedule: {stages: [{from: 0, rate: auto}]}\n" +
             std::string("\0attention.compress={rate: 4}", 29));

  std::set<std::string> dictionary = {": ", "- ", "{", "}", "[", "]", "&a", "*a", "!!str", "-1"};
  dictionary.insert(
      {"1e309", "0x7f", "9223372036854775807", "null", "true", "~", ".inf", "${env:"});
  add_words(words, dictionary);
  write_dictionary(root / "config.dict", dictionary);
}

}  // namespace
}  // namespace nsa::test

int main(int argc, char** argv) {
  try {
    nsa::check(argc == 2, "make_corpus needs the folder to write to");
    using namespace nsa::test;
    const fs::path root = argv[1];
    fs::create_directories(root);
    write_shards(root);
    write_indices(root);
    write_text(root);
    write_tensors(root);
    write_manifests(root);
    write_configs(root);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
