#pragma once

// A tiny training run on text from a seeded grammar: written, tokenised and trained by the real
// programs, in seconds.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "promises/process.h"
#include "support/temp_folder.h"

namespace nsa::test {

/// `documents` short texts as JSONL. Sentences agree over a distance: who was named first returns
/// at the end.
std::string grammar_jsonl(std::int64_t documents, std::uint64_t seed);

/// 40 steps in two stages (context 32 at rate 1, then 96 at rate 4 from step 13 on, in the middle
/// of a page), nearly two epochs: the edge falls into a step of the second stage.
std::string tiny_yaml();

using Overrides = std::vector<std::string>;

/// A folder with tokens and run.yaml; runs write to out/<name> in it.
class TinyRun : public ::testing::Test {
 protected:
  void SetUp() override;

  /// Encodes the text again into shards of at most `tokens` tokens; since documents stay whole, no
  /// two of the training shards have to be equally large. Returns how many different sizes there
  /// are.
  std::size_t encode_shards(std::int64_t tokens) const;
  /// nsa_train --config run.yaml with these overrides and arguments; run.out_dir is out/<name>.
  Outcome train(const std::string& name, const Overrides& overrides = {}, const Watch& watch = {},
                const std::vector<std::string>& more = {}) const;
  std::filesystem::path out(const std::string& name) const { return folder_ / "out" / name; }
  /// Train and val rows of metrics.jsonl, without the fields that tell of time and memory.
  std::string rows(const std::string& name) const;
  /// All rows, as written.
  std::string metrics(const std::string& name) const;
  /// The tensors of a checkpoint: master weights and moments.
  std::string tensors(const std::string& name, std::int64_t step) const;
  /// Expects equal rows and equal tensors after the last step.
  void expect_same_run(const std::string& name, const std::string& other,
                       std::int64_t steps = 40) const;

  TempFolder folder_;
};

}  // namespace nsa::test
