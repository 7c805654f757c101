// nsa_train: reads a configuration and trains, or does one of the smaller things named below.

#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "command_line.h"
#include "config/parse.h"
#include "core/error.h"
#include "core/log.h"
#include "core/standard_streams.h"
#include "train/modes.h"
#include "train/plan.h"
#include "train/trainer.h"
#include "train/version.h"

namespace nsa {
namespace {

struct Arguments {
  std::string config;
  std::vector<std::string> overrides;
  std::string resume;
  std::string checkpoint;
  std::string verify;
  bool print_config = false;
  bool plan = false;
  bool check_data = false;
  bool eval_only = false;
  bool verify_checkpoints = false;
  bool version = false;
  std::vector<std::string> not_built;  ///< flags of modes that this version does not have
};

/// An empty text is what a shell makes of a variable that is not set.
CLI::Validator not_empty() {
  return {[](const std::string& text) {
            return text.empty() ? std::string("is empty; give it a value or leave it out") : "";
          },
          ""};
}

void describe(CLI::App& app, Arguments& arguments) {
  app.add_option("--config", arguments.config, "the run, as YAML (docs/config.md)");
  app.add_option("--override", arguments.overrides, "a.b=c: sets one key; may be repeated")
      ->allow_extra_args(false)
      ->expected(1)
      ->take_all();
  app.add_option("--resume", arguments.resume, "auto | never | must | PATH: checkpoint.resume")
      ->check(not_empty());
  app.add_flag("--print-config", arguments.print_config, "print the resolved YAML and exit");
  app.add_flag(
      "--plan", arguments.plan,
      "print steps, learning rates, sparsity, FLOPs, memory and disk need; no data needed");
  app.add_flag("--check-data", arguments.check_data,
               "read every token once; print counts, documents, dropped tokens, unigram entropy");
  app.add_flag("--eval-only", arguments.eval_only,
               "validation loss of the newest checkpoint (or --ckpt DIR)");
  app.add_option("--ckpt", arguments.checkpoint, "the checkpoint of --eval-only")
      ->check(not_empty());
  app.add_option("--verify-ckpt", arguments.verify,
                 "check the checksums of DIR (default: all checkpoints of the run)")
      ->expected(0, 1)
      ->each([](const std::string&) {});
  app.add_flag("--version", arguments.version, "print the version and exit");
  for (const char* flag : {"--export", "--selftest"}) {
    app.add_option_function<std::vector<std::string>>(
           flag,
           [flag, &arguments](const std::vector<std::string>&) {
             arguments.not_built.emplace_back(flag);
           },
           "not in this version")
        ->expected(0, 1);
  }
}

std::string absolute(const std::string& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

Config configuration(const Arguments& arguments) {
  if (arguments.config.empty()) {
    fail_config("--config PATH is needed; nsa_train --help lists everything");
  }
  std::vector<std::string> warnings;
  Config config = parse_config(arguments.config, arguments.overrides, &warnings);
  for (const std::string& warning : warnings) log::warn(warning);
  const std::string& resume = arguments.resume;
  if (!resume.empty()) {
    const bool is_word = resume == "auto" || resume == "never" || resume == "must";
    config.checkpoint.resume = is_word ? resume : absolute(resume);
  }
  return config;
}

/// What the program is asked for that it prints, in place of training.
std::vector<std::string> asked_modes(const Arguments& a) {
  std::vector<std::string> modes;
  const auto add = [&modes](bool asked, const char* flag) {
    if (asked) modes.emplace_back(flag);
  };
  add(a.version, "--version");
  add(a.print_config, "--print-config");
  add(a.plan, "--plan");
  add(a.check_data, "--check-data");
  add(a.eval_only, "--eval-only");
  add(a.verify_checkpoints, "--verify-ckpt");
  return modes;
}

/// A flag that the others would leave without effect is a mistake.
void check_flags(const Arguments& a) {
  if (!a.not_built.empty()) fail_config(a.not_built.front() + " is not in this version");
  const std::vector<std::string> modes = asked_modes(a);
  if (modes.size() > 1) {
    fail_config(modes[0] + " and " + modes[1] + " are two modes; give one of them at a time");
  }
  if (!a.checkpoint.empty() && !a.eval_only) {
    fail_config(
        "--ckpt is read by --eval-only; add that, or name the checkpoint to go on from with "
        "--resume PATH");
  }
}

ExitCode run(const Arguments& arguments) {
  check_flags(arguments);
  if (arguments.version) {
    std::cout << "nsa_train " << full_version() << '\n';
    return ExitCode::kDone;
  }
  if (arguments.verify_checkpoints && !arguments.verify.empty()) {
    return verify_checkpoints(absolute(arguments.verify));
  }
  const Config config = configuration(arguments);
  if (arguments.verify_checkpoints) return verify_checkpoints(config.checkpoint.dir);
  if (arguments.print_config) {
    std::cout << print_config(config);
    return ExitCode::kDone;
  }
  if (arguments.plan) {
    std::cout << plan_report(config);
    return ExitCode::kDone;
  }
  if (arguments.check_data) return check_data(config);
  if (arguments.eval_only) {
    return evaluate_checkpoint(config,
                               arguments.checkpoint.empty() ? "" : absolute(arguments.checkpoint));
  }
  return Trainer(config).train();
}

ExitCode run_command_line(int argc, char** argv) {
  CLI::App app("Trains language models with native sparse attention.", "nsa_train");
  Arguments arguments;
  describe(app, arguments);
  if (!read_command_line(app, argc, argv)) return ExitCode::kDone;
  arguments.verify_checkpoints = app.count("--verify-ckpt") > 0;
  const ExitCode code = run(arguments);
  // A training run outlives the terminal that shows it; an answer has to arrive.
  if (!asked_modes(arguments).empty()) check_standard_output();
  return code;
}

}  // namespace
}  // namespace nsa

int main(int argc, char** argv) {
  return nsa::run_program([&] { return nsa::run_command_line(argc, argv); });
}
