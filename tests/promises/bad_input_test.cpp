// What the programs say of input that they cannot use: one sentence, the exit code, nothing lost.

#include <sys/stat.h>

#include "data/token_dataset.h"
#include "data/tokenizer.h"
#include "promises/tiny_run.h"

namespace nsa::test {
namespace {

const std::string kTrain = std::string(NSA_BINARY_DIR) + "/nsa_train";
const std::string kTokenize = std::string(NSA_BINARY_DIR) + "/nsa_tokenize";

using Parts = std::vector<std::string>;

/// The last line of stderr is the sentence; warnings may stand before it.
void expect_refused(const Outcome& run, int code, const Parts& parts) {
  EXPECT_EQ(run.code, code) << run.err;
  ASSERT_TRUE(run.err.ends_with("\n")) << run.err;
  const std::size_t newline = run.err.rfind('\n', run.err.size() - 2);
  const std::string last = run.err.substr(newline == std::string::npos ? 0 : newline + 1);
  EXPECT_TRUE(last.starts_with("error: ")) << run.err;
  for (const std::string& part : parts) {
    EXPECT_NE(last.find(part), std::string::npos) << part << " is not in: " << last;
  }
}

class BadInput : public TinyRun {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string pipe() const {
    mkfifo(path("pipe").c_str(), 0600);
    return path("pipe");
  }
  Outcome config_check(const Overrides& overrides) const {
    return train("unused", overrides, {}, {"--print-config"});
  }
  Outcome data_check(const Overrides& overrides) const {
    return train("unused", overrides, {}, {"--check-data"});
  }
  Outcome encode(const std::string& text, const Parts& more = {}) const {
    Parts arguments = {kTokenize, "encode", "--model", path("text.model"),
                       "--in",    text,     "--out",   path("new")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments);
  }
};

TEST_F(BadInput, AConfigurationThatIsADeviceOrAPipeExitsTwo) {
  for (const std::string& config : {std::string("/dev/zero"), pipe()}) {
    expect_refused(run_program({kTrain, "--config", config, "--print-config"}), 2,
                   {config, "is a device, pipe or socket", "regular file"});
  }
}

TEST_F(BadInput, AConfigurationLongerThanAnyIsRefused) {
  std::filesystem::resize_file(folder_ / "run.yaml", std::uintmax_t{1} << 40U);
  expect_refused(config_check({}), 2, {"run.yaml: is longer than 16 MiB", "another file"});
}

TEST_F(BadInput, TextThatIsADeviceOrAPipeExitsThree) {
  for (const std::string& text : {std::string("/dev/zero"), pipe()}) {
    expect_refused(encode(text), 3, {text, "is not a regular file", "write the text to a file"});
    expect_refused(run_program({kTokenize, "train", "--in", text, "--vocab-size", "320", "--out",
                                path("new.model")}),
                   3, {text, "is not a regular file"});
  }
}

TEST_F(BadInput, AShardThatIsALinkToItselfExitsThree) {
  std::filesystem::create_symlink("loop.bin", folder_ / "loop.bin");
  expect_refused(data_check({"data.train=[" + path("loop.bin") + "]"}), 3,
                 {"loop.bin", "Too many levels of symbolic links"});
  expect_refused(data_check({"data.format=megatron", "data.train=[" + path("loop.bin") + "]"}), 3,
                 {"loop.", "Too many levels of symbolic links"});
}

TEST_F(BadInput, TextThatIsALinkToItselfExitsThree) {
  std::filesystem::create_directory(folder_ / "in");
  std::filesystem::create_symlink("loop.txt", folder_ / "in/loop.txt");
  expect_refused(encode(path("in/loop.txt")), 3, {"in/loop.txt: cannot be opened"});
  expect_refused(encode(path("in")), 3, {"in/loop.txt: is a link that leads to no file"});
}

TEST_F(BadInput, AShardNamedTwiceIsRefused) {
  const std::string shard = path("tokens_train_00000.bin");
  expect_refused(data_check({"data.train=[" + shard + ", " + path("tokens_train_*.bin") + "]"}), 3,
                 {shard, "is named twice", "tokens_train_*.bin", "name each shard once"});
  std::filesystem::create_symlink(shard, folder_ / "linked.bin");
  expect_refused(data_check({"data.train=[" + shard + ", " + path("linked.bin") + "]"}), 3,
                 {"is the same file as", "linked.bin", "name each shard once"});
}

TEST_F(BadInput, AMegatronPairMayBeNamedByBothItsFiles) {
  ASSERT_EQ(encode(path("text.jsonl"), {"--format", "megatron"}).code, 0);
  const Outcome pair = data_check({"data.train=[" + path("new_*") + "]", "data.val=null"});
  EXPECT_EQ(pair.code, 0) << pair.err;
  expect_refused(data_check({"data.train=[" + path("new_*.idx") + ", " + path("new_*.idx") + "]"}),
                 3, {"is named twice"});
}

TEST_F(BadInput, EmptyNamesAndListsAreCalledEmpty) {
  for (const char* train : {"data.train=['']", "data.train=\"\"", "data.val=['']"}) {
    expect_refused(config_check({train}), 2, {"is an empty name", "path"});
  }
  expect_refused(config_check({"attention.branches=[]"}), 2,
                 {"attention.branches is an empty list", "at least one branch"});
  expect_refused(config_check({"optim.betas=[0.9]"}), 2,
                 {"optim.betas is a list of 1 value(s)", "[0.9, 0.95]"});
  expect_refused(encode(""), 3, {"a file name is empty"});
}

TEST_F(BadInput, MetricsInTheWayOfTheRunsOtherFilesAreRefused) {
  for (const char* taken : {"ckpt", "ckpt/metrics.jsonl", "./x/../ckpt/"}) {
    expect_refused(config_check({std::string("log.metrics=") + taken}), 2,
                   {"log.metrics is ", "checkpoint.dir is ", "such as metrics.jsonl"});
  }
  for (const char* taken : {"lock", "config.resolved.yaml"}) {
    expect_refused(config_check({std::string("log.metrics=") + taken}), 2,
                   {"log.metrics is ", taken, "that the run itself writes"});
    expect_refused(config_check({std::string("checkpoint.dir=") + taken}), 2,
                   {"checkpoint.dir is ", taken, "that the run itself writes"});
  }
  for (const char* above : {".", "..", "/"}) {
    expect_refused(config_check({std::string("checkpoint.dir=") + above}), 2,
                   {"checkpoint.dir is ", "which holds run.out_dir"});
    expect_refused(config_check({std::string("log.metrics=") + above}), 2, {"log.metrics is "});
  }
}

TEST_F(BadInput, MetricsThatAreAFolderOrAPipeAreRefusedAndStay) {
  std::filesystem::create_directories(out("run") / "folder");
  for (const std::string& name : {std::string("folder"), pipe()}) {
    expect_refused(train("run", {"log.metrics=" + name}), 2,
                   {"log.metrics is ", name, "no regular file"});
  }
  EXPECT_TRUE(std::filesystem::is_directory(out("run") / "folder"));
  EXPECT_TRUE(std::filesystem::is_fifo(path("pipe")));
}

TEST_F(BadInput, NumbersBeyondAnyModelAreRefused) {
  const auto expect_most = [this](const std::string& key, const std::string& most) {
    expect_refused(config_check({key + "=2147483647"}), 2,
                   {key + " is 2147483647", "at most " + most});
  };
  expect_most("attention.compress.bins", "65536");
  expect_most("attention.select.top_n", "65536");
  expect_most("attention.select.initial", "65536");
  expect_most("attention.select.local", "65536");
  expect_most("attention.window", "1073741824");
  expect_most("model.layers", "4096");
  expect_most("model.heads", "4096");
  expect_most("model.kv_heads", "4096");
  for (const char* width : {"hidden", "head_dim", "v_head_dim", "rope_dim", "ffn"}) {
    expect_most(std::string("model.") + width, "1048576");
  }
}

TEST_F(BadInput, SizesWhoseProductsNoNumberHoldsAreRefused) {
  expect_refused(config_check({"model={layers: 4096, hidden: 1048576, heads: 4096, kv_heads: 4096, "
                               "head_dim: 1048576, ffn: 1048576, vocab_size: 16777216}"}),
                 2, {"model.layers is 4096", "parameters; lower it"});
  expect_refused(
      config_check({"schedule.stages=null", "train.tokens_per_step=4294967296",
                    "train.seq_len=1073741824", "train.micro_batch=4", "model.ffn=1048576"}),
      2, {"train.seq_len is 1073741824", "activations; lower it, micro_batch"});
}

TEST_F(BadInput, MoreMemoryThanTheMachineHasIsRefusedBeforeItIsAllocated) {
  const Overrides wide = {"model.hidden=65536", "model.layers=200"};
  expect_refused(train("run", wide), 2,
                 {"the run needs ", "this machine has ", "lower model.layers (200)", "--plan"});
  EXPECT_FALSE(std::filesystem::exists(out("run")));
  const Outcome plan = train("run", wide, {}, {"--plan"});
  EXPECT_EQ(plan.code, 0) << plan.err;
  const Overrides passes = {"model.hidden=65536", "model.layers=200", "train.steps=null",
                            "train.epochs=1"};
  expect_refused(train("run", passes), 2, {"the run needs "});
  expect_refused(train("run", {"schedule.stages=null", "train.seq_len=1048576",
                               "train.tokens_per_step=1048576", "model.ffn=65536"}),
                 2, {"the run needs ", "lower train.micro_batch or train.seq_len"});
}

TEST_F(BadInput, AnEndOfTextThatNothingCouldReadIsRefused) {
  expect_refused(config_check({"tokenizer={model: null, eos_id: 3}"}), 2,
                 {"tokenizer.eos_id", "without tokenizer.model", "set both or neither"});
  expect_refused(data_check({"model.vocab_size=512", "tokenizer.eos_id=320"}), 2,
                 {"tokenizer.eos_id is 320", "text.model has 320 tokens"});
}

TEST_F(BadInput, NullWhereAValueIsNeededIsRefused) {
  expect_refused(config_check({"signals.stop="}), 2,
                 {"signals.stop is null", "a list of TERM, INT", "[] chooses none"});
  EXPECT_EQ(config_check({"signals.stop=[]"}).code, 0);
  expect_refused(config_check({"attention.branches="}), 2,
                 {"attention.branches is null", "at least one branch"});
  expect_refused(config_check({"run.device="}), 2, {"run.device is empty", "auto, cpu, cuda"});
}

TEST_F(BadInput, ALengthWithItsNumberForgottenIsRefused) {
  expect_refused(config_check({"train.steps="}), 2,
                 {"override 2: train.steps is null", "train.epochs and train.tokens"});
  EXPECT_EQ(config_check({"train.steps=null", "train.tokens=4K"}).code, 0);
}

TEST_F(BadInput, AFolderThatCannotBeMadeIsToldWithWhatToDo) {
  spill(folder_ / "taken", "");
  expect_refused(
      run_program(
          {kTrain, "--config", path("run.yaml"), "--override", "run.out_dir=" + path("taken/run")}),
      4, {"cannot create folder", "move away what has that name, or choose another run.out_dir"});
  expect_refused(train("run", {"checkpoint.dir=" + path("taken/ckpt")}), 4,
                 {"cannot create folder", "or choose another run.out_dir or checkpoint.dir"});
  expect_refused(train("run", {"log.metrics=" + path("taken/metrics.jsonl")}), 4,
                 {"cannot write", "or choose another log.metrics"});
  expect_refused(run_program({kTokenize, "encode", "--model", path("text.model"), "--in",
                              path("text.jsonl"), "--out", path("taken/")}),
                 1, {"cannot be made", "or choose another --out"});
}

TEST_F(BadInput, ACheckpointThatIsALinkToItselfOrMissingExitsFour) {
  std::filesystem::create_symlink("loop", folder_ / "loop");
  expect_refused(train("run", {}, {}, {"--resume", path("loop")}), 4,
                 {"loop: ", "Too many levels of symbolic links", "--resume"});
  expect_refused(train("run", {"checkpoint.dir=" + path("loop")}), 4,
                 {"cannot create folder", "loop", "move away what has that name"});
  expect_refused(train("run", {"run.out_dir=" + path("loop")}), 4, {"cannot create folder"});
  expect_refused(train("run", {}, {}, {"--verify-ckpt", path("loop")}), 4,
                 {"there is no checkpoint in", "name a checkpoint, or the folder"});
  expect_refused(train("run", {}, {}, {"--resume", path("nowhere")}), 4,
                 {"there is no such folder", "name another one with --resume"});
  expect_refused(train("run", {}, {}, {"--resume", "must"}), 4,
                 {"there is none in", "--resume PATH"});
}

TEST_F(BadInput, EachDamageOfACheckpointIsToldWithWhatToDo) {
  ASSERT_EQ(train("run", {"train.steps=2"}).code, 0);
  const std::filesystem::path checkpoint = out("run") / "ckpt/step_00000002";
  const auto expect_damage = [&](const std::string& name, const std::string& bytes,
                                 const std::string& told) {
    const std::string good = slurp(checkpoint / name);
    spill(checkpoint / name, bytes);
    for (const Parts& more : {Parts{"--resume", checkpoint.string()}, Parts{"--eval-only"}}) {
      const Outcome run = train("run", {"train.steps=2"}, {}, more);
      EXPECT_EQ(run.code, 4) << run.err;
      EXPECT_NE(run.err.find(name + told), std::string::npos) << told << ": " << run.err;
      EXPECT_NE(run.err.find("; restore it from a copy, or name another one with --resume"),
                std::string::npos)
          << run.err;
    }
    EXPECT_EQ(slurp(checkpoint / name), bytes);
    spill(checkpoint / name, good);
  };
  for (const char* name : {"rank_00000.bin", "config.resolved.yaml"}) {
    std::string bytes = slurp(checkpoint / name);
    expect_damage(name, "", " has 0 bytes, but the manifest says ");
    expect_damage(name, bytes.substr(0, bytes.size() - 1), " has ");
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    expect_damage(name, bytes, " does not match the checksum in the manifest");
  }
  std::string manifest = slurp(checkpoint / "manifest.json");
  expect_damage("manifest.json", "", " is not readable");
  expect_damage("manifest.json", manifest.substr(0, manifest.size() / 2), " is not readable");
  manifest[manifest.find("\"step\": 2") + 8] = '3';
  expect_damage("manifest.json", manifest, " does not match its own checksum");
  EXPECT_EQ(train("run", {"train.steps=2"}).code, 0);
}

TEST_F(BadInput, AMissingPartOfACheckpointIsNamed) {
  ASSERT_EQ(train("run", {"train.steps=2"}).code, 0);
  const std::filesystem::path checkpoint = out("run") / "ckpt/step_00000002";
  for (const std::string name : {"rank_00000.bin", "config.resolved.yaml", "manifest.json"}) {
    std::filesystem::rename(checkpoint / name, folder_ / "aside");
    expect_refused(train("run", {}, {}, {"--resume", checkpoint.string()}), 4,
                   {"step_00000002: " + name + " is missing", "restore it from a copy"});
    std::filesystem::rename(folder_ / "aside", checkpoint / name);
  }
}

TEST_F(BadInput, TextComesThroughWhateverItsLinesHold) {
  using namespace std::string_literals;
  const std::string separator = "\xE2\x80\xA8";  // U+2028
  spill(folder_ / "odd.jsonl", "\xEF\xBB\xBF{\"text\": \"the miller\"}\r\n"s + "{\"text\": \"the" +
                                   separator + "fox\"}\n" + "\r\n{\"text\": \"\"}\n" +
                                   "{\"text\": \"a\\u0000b\"}\n" + "{\"text\": \"at \xFF" +
                                   "dawn\"}");
  const Outcome run = encode(path("odd.jsonl"));
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.out.find("4 documents"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("2 empty"), std::string::npos) << run.out;
  const Tokenizer tokenizer(path("text.model"));
  const TokenDataset data({path("new_00000.bin")});
  std::vector<std::int32_t> ids(static_cast<std::size_t>(data.tokens()));
  data.read(0, ids);
  std::vector<std::string> texts(1);
  std::vector<std::int32_t> document;
  for (const std::int32_t id : ids) {
    if (id != tokenizer.eos_id()) {
      document.push_back(id);
      continue;
    }
    texts.back() = tokenizer.decode(document);
    texts.emplace_back();
    document.clear();
  }
  EXPECT_EQ(texts, (Parts{"the miller", "the" + separator + "fox", "a\0b"s,
                          "at \xEF\xBF\xBD" + "dawn"s, ""}));
}

TEST_F(BadInput, BadLinesAreToldWithTheirNumberAndLoseNothing) {
  spill(folder_ / "new_00000.bin", "of an earlier run");
  const auto expect_line = [this](const std::string& line, const std::string& told) {
    spill(folder_ / "odd.jsonl", "{\"text\": \"the miller\"}\n" + line + "\n{\"text\": \"a\"}\n");
    expect_refused(encode(path("odd.jsonl")), 3, {"odd.jsonl:2: " + told, "--on-bad-line skip"});
    EXPECT_EQ(slurp(path("new_00000.bin")), "of an earlier run");
    EXPECT_FALSE(std::filesystem::exists(path("new_00000.bin.partial")));
    const Outcome skipped = encode(path("odd.jsonl"), {"--on-bad-line", "skip"});
    EXPECT_EQ(skipped.code, 0) << skipped.err;
    EXPECT_NE(skipped.out.find("2 documents"), std::string::npos) << skipped.out;
    EXPECT_NE(skipped.out.find("1 bad lines"), std::string::npos) << skipped.out;
    spill(folder_ / "new_00000.bin", "of an earlier run");
  };
  expect_line("{\"text\": \"cut", "is not valid JSON");
  expect_line(R"({"text": "a"} {"text": "b"})", "is not valid JSON");
  expect_line(std::string("{\"text\": \"a\0b\"}", 15), "is not valid JSON");
  expect_line(R"(["text"])", "is a JSON array, wanted an object");
  expect_line(R"({"body": "x"})", R"(has no key "text" (its keys: body)");
  expect_line(R"({"text": 5})", "holds a number");
  expect_line(R"({"text": null})", "holds a null");
}

TEST_F(BadInput, TextWithoutAnyTokenWritesNothing) {
  for (const char* text : {"", "\n\n", "{\"text\": \"\"}\n"}) {
    spill(folder_ / "odd.jsonl", text);
    expect_refused(encode(path("odd.jsonl")), 3, {"gave no token", "nothing was written"});
  }
  EXPECT_FALSE(std::filesystem::exists(path("new_00000.bin")));
}

TEST_F(BadInput, AnEmptyShardIsCalledEmpty) {
  spill(folder_ / "empty.bin", "");
  expect_refused(data_check({"data.train=[" + path("empty.bin") + "]"}), 3,
                 {"empty.bin: is empty", "nsa_tokenize encode"});
}

}  // namespace
}  // namespace nsa::test
