// nsa_recall: writes the key-value recall task, and scores a run that was trained on it.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "command_line.h"
#include "config/parse.h"
#include "core/error.h"
#include "core/format.h"
#include "core/log.h"
#include "core/standard_streams.h"
#include "recall/recall_score.h"
#include "recall/recall_task.h"

namespace nsa::recall {
namespace {

struct Options {
  Task task;
  std::string out;
  std::int64_t train_tokens = 8'000'000;
  std::int64_t documents = 64;
  std::string config;
  std::vector<std::string> overrides;
  std::string checkpoint;
};

void add_task_options(CLI::App& command, Task& task) {
  command.add_option("--keys", task.keys, "Different keys")->capture_default_str();
  command.add_option("--values", task.values, "Different values")->capture_default_str();
}

void make(const Options& options) {
  const Task& task = options.task;
  const auto report = [](const std::string& path, const Written& written) {
    log::info(fmt::format("{}: {} documents, {} tokens", path, written.documents, written.tokens));
  };
  const std::string train = options.out + "/train.bin";
  const std::string val = options.out + "/val.bin";
  report(train, write_train(task, train, options.train_tokens));
  report(val, write_val(task, val, options.documents));
  log::info(fmt::format(
      "vocabulary {}; a held-out document asks for {} pairs; by chance {:.1f} % of "
      "the answers are right",
      task.vocab_size(), Task::pairs(task.length), 100.0 / static_cast<double>(task.values)));
}

void score_run(const Options& options) {
  std::vector<std::string> warnings;
  const Config config = parse_config(options.config, options.overrides, &warnings);
  for (const std::string& warning : warnings) log::warn(warning);
  const std::string checkpoint =
      options.checkpoint.empty() ? "" : std::filesystem::absolute(options.checkpoint).string();
  const Score result = score(config, options.task, checkpoint, options.documents);
  log::info(
      fmt::format("step {}: {:.2f} % of {} held-out queries right; the nearest answer is {} "
                  "tokens back",
                  result.step, 100 * result.accuracy(), result.queries, result.nearest));
  for (const Found& found : result.found) {
    log::info(fmt::format("layer {}: the block of the answer is selected for {:.2f} % of them",
                          found.layer, 100 * found.share));
  }
}

ExitCode run(int argc, char** argv) {
  CLI::App app("The key-value recall task: writes it, and scores a run on it (docs/recall.md).",
               "nsa_recall");
  app.require_subcommand(1);
  Options options;
  Task& task = options.task;
  CLI::App* make_command = app.add_subcommand("make", "Write train.bin and val.bin");
  make_command->add_option("--out", options.out, "Folder of the shards")->required();
  make_command->add_option("--length", task.length, "Tokens of a held-out document")
      ->capture_default_str();
  make_command
      ->add_option("--shortest", task.shortest,
                   "Tokens of the shortest training document: --length, its half, quarter ...")
      ->capture_default_str();
  make_command->add_option("--train-tokens", options.train_tokens, "Tokens of train.bin, at least")
      ->capture_default_str();
  make_command->add_option("--seed", task.seed, "Another seed, other documents")
      ->capture_default_str();
  CLI::App* score_command =
      app.add_subcommand("score", "Accuracy of a checkpoint on the queries of data.val");
  score_command->add_option("--config", options.config, "The run's YAML")->required();
  score_command->add_option("--override", options.overrides, "a.b=c: sets one key; may be repeated")
      ->allow_extra_args(false)
      ->expected(1)
      ->take_all();
  score_command->add_option("--ckpt", options.checkpoint, "A checkpoint; default: the newest");
  for (CLI::App* command : {make_command, score_command}) {
    add_task_options(*command, task);
    command->add_option("--documents", options.documents, "Held-out documents")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30))
        ->capture_default_str();
  }
  if (!read_command_line(app, argc, argv)) return ExitCode::kDone;
  if (make_command->parsed()) {
    make(options);
  } else {
    score_run(options);
    check_standard_output();
  }
  return ExitCode::kDone;
}

}  // namespace
}  // namespace nsa::recall

int main(int argc, char** argv) {
  return nsa::run_program([&] { return nsa::recall::run(argc, argv); });
}
