#include "promises/refusal.h"

#include <regex>

#include "data/shards.h"

namespace nsa::test {
namespace {

namespace fs = std::filesystem;

const std::string kPrograms = NSA_BINARY_DIR;

constexpr const char* kYaml = R"(run: {seed: 3, device: cpu}
model: {vocab_size: 64, layers: 1, hidden: 16, heads: 2, kv_heads: 1, ffn: 32}
attention:
  compress: {rate: 4, bins: 8}
  select: {block: 8, top_n: 3, initial: 1, local: 1}
  window: 8
data: {train: [train.bin], val: [val.bin]}
train: {seq_len: 32, tokens_per_step: 64, steps: 4}
eval: {every: 0}
checkpoint: {every: 0}
)";

}  // namespace

void expect_refusal(const Outcome& outcome, int code, const Words& parts) {
  EXPECT_EQ(outcome.code, code) << outcome.err;
  ASSERT_TRUE(outcome.err.ends_with("\n")) << outcome.err;
  const std::size_t newline = outcome.err.rfind('\n', outcome.err.size() - 2);
  const std::string last = outcome.err.substr(newline == std::string::npos ? 0 : newline + 1);
  EXPECT_TRUE(last.starts_with("error: ")) << outcome.err;
  EXPECT_EQ(outcome.err.find("error: "), outcome.err.rfind("error: ")) << outcome.err;
  for (const std::string& part : parts) {
    EXPECT_NE(last.find(part), std::string::npos) << part << " is not in: " << last;
  }
  EXPECT_FALSE(std::regex_search(last, std::regex(R"(\.(cpp|h)(:[0-9]|\b))"))) << last;
}

std::map<std::string, std::string> contents(const fs::path& folder) {
  std::map<std::string, std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const bool is_file =
        !entry.is_symlink() && entry.is_regular_file() && entry.path().filename() != "lock";
    found[entry.path().string()] = is_file ? slurp(entry.path()) : "";
  }
  return found;
}

void SmallRun::SetUp() {
  spill(folder_ / "run.yaml", kYaml);
  const ShardLabel label{.vocab_size = kVocabulary, .tokenizer = 0, .eos_id = 1};
  write_shard(path("train.bin"), random_documents(1, kVocabulary, {250, 150}), label);
  write_shard(path("val.bin"), random_documents(2, kVocabulary, {100}), label);
}

Outcome SmallRun::train(const Words& overrides, const Words& more) const {
  Words arguments = {kPrograms + "/nsa_train", "--config", path("run.yaml"), "--override",
                     "run.out_dir=" + out().string()};
  for (const std::string& text : overrides) {
    arguments.emplace_back("--override");
    arguments.push_back(text);
  }
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_program(arguments);
}

void SmallRun::expect_train_refuses(const Words& overrides, const Words& more, int code,
                                    const Words& parts) const {
  const auto before = contents(folder_.path());
  expect_refusal(train(overrides, more), code, parts);
  const auto after = contents(folder_.path());
  for (const auto& [name, bytes] : before) {
    ASSERT_TRUE(after.count(name) == 1) << name << " is gone";
    EXPECT_TRUE(after.at(name) == bytes) << name << " changed";
  }
  for (const auto& [name, bytes] : after) EXPECT_TRUE(before.count(name) == 1) << name << " is new";
}

Outcome tokenize(const Words& arguments) {
  Words all = {kPrograms + "/nsa_tokenize"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return run_program(all);
}

}  // namespace nsa::test
