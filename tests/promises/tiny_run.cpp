#include "promises/tiny_run.h"

#include <array>
#include <regex>
#include <set>
#include <sstream>

#include "core/philox.h"

namespace nsa::test {
namespace {

const std::string kPrograms = NSA_BINARY_DIR;

template <std::size_t kCount>
const char* pick(const std::array<const char*, kCount>& words, std::uint32_t bits) {
  return words[bits % kCount];
}

std::string sentence(std::uint64_t seed, std::uint64_t document, std::uint64_t index) {
  constexpr std::array<const char*, 8> kWho = {"the miller", "the fox",   "a sailor", "my aunt",
                                               "the crow",   "old Peter", "the king", "a child"};
  constexpr std::array<const char*, 6> kDoes = {"sees",  "follows", "forgets",
                                                "calls", "greets",  "paints"};
  constexpr std::array<const char*, 6> kHow = {"slowly", "at dawn",  "in the rain",
                                               "twice",  "with joy", "by the river"};
  const auto bits = philox(seed, document, index);
  const std::string first = pick(kWho, bits[0]);
  return first + " " + pick(kDoes, bits[1]) + " " + pick(kWho, bits[2]) + " " +
         pick(kHow, bits[3]) + ", and then " + first + " goes home. ";
}

std::string number(std::int64_t value) {
  return std::to_string(value);
}

}  // namespace

std::string grammar_jsonl(std::int64_t documents, std::uint64_t seed) {
  std::string all;
  for (std::int64_t document = 0; document < documents; ++document) {
    const auto name = static_cast<std::uint64_t>(document);
    const std::uint32_t sentences = 2 + philox(seed, name, 1U << 20U)[0] % 8;
    std::string text;
    for (std::uint32_t i = 0; i < sentences; ++i) text += sentence(seed, name, i);
    all += "{\"text\": \"" + text + "\"}\n";
  }
  return all;
}

std::string tiny_yaml() {
  return R"(
run: {name: tiny, seed: 5, device: cpu}
model: {vocab_size: 320, layers: 2, hidden: 32, heads: 2, kv_heads: 1, ffn: 64}
attention:
  compress: {rate: 4, bins: 8}
  select: {block: 8, top_n: 4, initial: 1, local: 2}
  window: 16
data:
  train: [tokens_train_*.bin]
  val: [tokens_val_*.bin]
tokenizer: {model: text.model}
train: {seq_len: 32, tokens_per_step: 416, micro_batch: auto, steps: 40}
optim: {lr: 5.0e-3, weight_decay: 0.1, clip: 1.0}
schedule:
  lr: {kind: cosine, warmup: 5, min_ratio: 0.1}
  stages:
    - {from: 0, seq_len: 32, rate: 1}
    - {from: 13, seq_len: 96, rate: 4, tokens_per_step: 384}
checkpoint: {every: 0}
eval: {every: 10, tokens: 1000, at_start: true}
)";
}

void TinyRun::SetUp() {
  spill(folder_ / "text.jsonl", grammar_jsonl(60, 11));
  spill(folder_ / "run.yaml", tiny_yaml());
  const std::string text = (folder_ / "text.jsonl").string();
  const std::string model = (folder_ / "text.model").string();
  const Outcome trained = run_program(
      {kPrograms + "/nsa_tokenize", "train", "--in", text, "--vocab-size", "320", "--out", model});
  ASSERT_EQ(trained.code, 0) << trained.err;
  const Outcome encoded =
      run_program({kPrograms + "/nsa_tokenize", "encode", "--model", model, "--in", text, "--out",
                   (folder_ / "tokens").string(), "--val-fraction", "0.15"});
  ASSERT_EQ(encoded.code, 0) << encoded.err;
}

std::size_t TinyRun::encode_shards(std::int64_t tokens) const {
  const Outcome encoded = run_program(
      {kPrograms + "/nsa_tokenize", "encode", "--model", (folder_ / "text.model").string(), "--in",
       (folder_ / "text.jsonl").string(), "--out", (folder_ / "tokens").string(), "--val-fraction",
       "0.15", "--shard-tokens", number(tokens)});
  EXPECT_EQ(encoded.code, 0) << encoded.err;
  std::set<std::uintmax_t> sizes;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    if (entry.path().filename().string().rfind("tokens_train_", 0) == 0) {
      sizes.insert(entry.file_size());
    }
  }
  return sizes.size();
}

Outcome TinyRun::train(const std::string& name, const Overrides& overrides, const Watch& watch,
                       const std::vector<std::string>& more) const {
  std::vector<std::string> arguments = {kPrograms + "/nsa_train", "--config",
                                        (folder_ / "run.yaml").string(), "--override",
                                        "run.out_dir=" + out(name).string()};
  for (const std::string& override_text : overrides) {
    arguments.emplace_back("--override");
    arguments.push_back(override_text);
  }
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_program(arguments, watch);
}

std::string TinyRun::metrics(const std::string& name) const {
  return slurp(out(name) / "metrics.jsonl");
}

std::string TinyRun::rows(const std::string& name) const {
  const std::regex timing(
      R"re(,"(tok_s|mfu_model|mem_gib|data_wait|wall_s|time)":("[^"]*"|[^,}]*))re");
  std::istringstream in(metrics(name));
  std::string kept;
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(R"({"type":"train")", 0) != 0 && line.rfind(R"({"type":"val")", 0) != 0)
      continue;
    kept += std::regex_replace(line, timing, "") + "\n";
  }
  return kept;
}

std::string TinyRun::tensors(const std::string& name, std::int64_t step) const {
  const std::string digits = number(step);
  return slurp(out(name) / "ckpt" / ("step_" + std::string(8 - digits.size(), '0') + digits) /
               "rank_00000.bin");
}

void TinyRun::expect_same_run(const std::string& name, const std::string& other,
                              std::int64_t steps) const {
  EXPECT_EQ(rows(name), rows(other));
  EXPECT_TRUE(tensors(name, steps) == tensors(other, steps)) << "weights or moments differ";
}

}  // namespace nsa::test
