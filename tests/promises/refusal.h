#pragma once

// What a program does with input that it cannot use: it says one sentence, ends with the exit code
// of that kind of fault, and leaves every file as it was.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "promises/process.h"
#include "support/temp_folder.h"

namespace nsa::test {

using Words = std::vector<std::string>;

/// Expects the exit code and, as the last line of stderr, one sentence with all of `parts`, which
/// names no source file. Warnings may stand before it.
void expect_refusal(const Outcome& outcome, int code, const Words& parts);

/// Every file below a folder with its bytes, every folder and link by its name alone, and so the
/// lock of a run, which tells its latest process.
std::map<std::string, std::string> contents(const std::filesystem::path& folder);

/// What runs need and no tokenizer has to make: a configuration and two small shards, written by
/// the test itself in no time.
class SmallRun : public ::testing::Test {
 protected:
  static constexpr std::int64_t kVocabulary = 64;  ///< of the model and of the shards
  static constexpr std::int64_t kTokens = 400;     ///< of the training shard

  void SetUp() override;

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::filesystem::path out() const { return folder_ / "out"; }
  /// nsa_train --config run.yaml; run.out_dir is `out`.
  Outcome train(const Words& overrides = {}, const Words& more = {}) const;
  /// The same, expecting a refusal that touches nothing.
  void expect_train_refuses(const Words& overrides, const Words& more, int code,
                            const Words& parts) const;

  TempFolder folder_;
};

/// nsa_tokenize with these arguments.
Outcome tokenize(const Words& arguments);

}  // namespace nsa::test
