#include "golden/golden_runner.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "core/error.h"
#include "support/golden_file.h"

namespace nsa::test {
namespace {

const char* const kRequired[] = {"paper_l32_d16_s64",
                                 "nodiv_T",
                                 "T_lt_l",
                                 "T_lt_window",
                                 "rate1_bypass",
                                 "l16_d16_s16",
                                 "gqa1",
                                 "gqa4",
                                 "gqa16",
                                 "dqk_ne_dv_mlpflat_rope",
                                 "packed_docs_rope",
                                 "rope_before_phi",
                                 "ties_dup",
                                 "ties_zero",
                                 "few_blocks_n16",
                                 "rate_sweep_1",
                                 "rate_sweep_8",
                                 "rate_sweep_16",
                                 "rate_sweep_32",
                                 "layer_full"};

class GoldenFile : public ::testing::TestWithParam<std::tuple<const char*, DType>> {};

TEST_P(GoldenFile, IsReproducedByTheOps) {
  const auto& [name, dtype] = GetParam();
  Backend backend = make_backend("cpu", 2);
  const GoldenResult result = run_golden(backend, read_golden_case(golden_path(name)), dtype);
  EXPECT_EQ(result.outcome, GoldenOutcome::kPass) << describe(result);
}

INSTANTIATE_TEST_SUITE_P(Cpu, GoldenFile,
                         ::testing::Combine(::testing::ValuesIn(kRequired),
                                            ::testing::Values(DType::kF32, DType::kF64)),
                         [](const auto& instance) {
                           return std::string(std::get<0>(instance.param)) + "_" +
                                  name_of(std::get<1>(instance.param));
                         });

TEST(GoldenRunner, EveryFileOfTheFolderIsRequiredOrSkipped) {
  const std::vector<std::string> files =
      golden_files({std::filesystem::path(golden_path("x")).parent_path().string()});
  std::set<std::string> wanted(std::begin(kRequired), std::end(kRequired));
  wanted.insert("opt_per_doc_rates");
  std::set<std::string> found;
  for (const std::string& file : files) found.insert(std::filesystem::path(file).stem().string());
  EXPECT_EQ(found, wanted);
  EXPECT_TRUE(std::is_sorted(files.begin(), files.end()));
}

TEST(GoldenRunner, SkipsDocumentsOfDifferingRatesAndSaysSo) {
  Backend backend = make_backend("cpu", 1);
  const GoldenResult result =
      run_golden(backend, read_golden_case(golden_path("opt_per_doc_rates")), DType::kF64);
  EXPECT_EQ(result.outcome, GoldenOutcome::kSkip);
  EXPECT_NE(describe(result).find("opt_per_doc_rates"), std::string::npos);
  EXPECT_NE(describe(result).find("fp64 SKIP"), std::string::npos);
  EXPECT_NE(describe(result).find("rates"), std::string::npos);
}

TEST(GoldenRunner, ResultsDoNotDependOnTheNumberOfThreads) {
  Backend one = make_backend("cpu", 1);
  Backend three = make_backend("cpu", 3);
  for (const char* name : {"packed_docs_rope", "layer_full"}) {
    const GoldenCase golden = read_golden_case(golden_path(name));
    EXPECT_EQ(run_golden(one, golden, DType::kF32).detail,
              run_golden(three, golden, DType::kF32).detail);
  }
}

TEST(GoldenRunner, APathThatIsNotThereIsADataError) {
  try {
    golden_files({golden_path("gqa1"), "/nonexistent/folder"});
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    EXPECT_NE(std::string(error.what()).find("/nonexistent/folder"), std::string::npos);
  }
}

}  // namespace
}  // namespace nsa::test
