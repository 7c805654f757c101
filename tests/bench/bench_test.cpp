// nsa_bench as its users run it, at shapes that take milliseconds. Nothing here judges speed.

#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "promises/process.h"

namespace nsa::test {
namespace {

using Json = nlohmann::json;

const std::vector<std::string> kSmall = {"--seq",      "96", "--heads", "4", "--kv-heads", "2",
                                         "--head-dim", "8",  "--rate",  "8", "--top-n",    "3",
                                         "--window",   "16"};

Outcome bench(const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {NSA_BINARY_DIR "/nsa_bench"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return run_program(all);
}

Outcome small_bench(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), kSmall.begin(), kSmall.end());
  return bench(arguments);
}

/// Every line of the output, parsed.
std::vector<Json> objects(const std::string& out) {
  std::vector<Json> all;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) all.push_back(Json::parse(line));
  return all;
}

void expect_positive(const Json& object, const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    ASSERT_TRUE(object.contains(key)) << key << " in " << object;
    EXPECT_GT(object[key].get<double>(), 0) << key << " in " << object;
  }
}

void expect_refused(const std::vector<std::string>& arguments, const std::string& part) {
  const Outcome outcome = bench(arguments);
  EXPECT_EQ(outcome.code, 2) << part;
  EXPECT_EQ(outcome.out, "");
  EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find('\n'), outcome.err.size() - 1) << outcome.err;
}

TEST(NsaBench, ResultsThatDoNotArriveExitOne) {
  for (const char* what : {"--help", "--op matmul_forward --seq 64"}) {
    const Outcome lost = run_program(
        {"/bin/sh", "-c", std::string(NSA_BINARY_DIR "/nsa_bench ") + what + " >/dev/full"});
    EXPECT_EQ(lost.code, 1) << what;
    EXPECT_NE(lost.err.find("could be written to stdout"), std::string::npos) << lost.err;
  }
}

TEST(NsaBench, AttentionPrintsThreeObjectsWithTheirKeys) {
  const Outcome outcome = small_bench({"--attention", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::vector<Json> lines = objects(outcome.out);
  ASSERT_EQ(lines.size(), 3U) << outcome.out;
  EXPECT_EQ(lines[0]["kind"], "nsa");
  EXPECT_EQ(lines[1]["kind"], "dense");
  EXPECT_EQ(lines[2]["kind"], "speedup");
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(lines[i].size(), 4U);
    EXPECT_EQ(lines[i]["seq"], 96);
    expect_positive(lines[i], {"fwd_ms", "fwd_bwd_ms"});
  }
  EXPECT_EQ(lines[2].size(), 5U);
  expect_positive(lines[2], {"fwd", "fwd_bwd", "dense_gflops", "sgemm_gflops"});
}

TEST(NsaBench, SpeedupIsDenseTimeByNsaTime) {
  const Outcome outcome = small_bench({"--attention", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::vector<Json> lines = objects(outcome.out);
  const auto ratio = [&](const char* key) {
    return lines.at(1)[key].get<double>() / lines.at(0)[key].get<double>();
  };
  EXPECT_NEAR(lines[2]["fwd"].get<double>() / ratio("fwd_ms"), 1, 1e-4);
  EXPECT_NEAR(lines[2]["fwd_bwd"].get<double>() / ratio("fwd_bwd_ms"), 1, 1e-4);
  // 4 heads x 8 channels: a product of 2 x 32 FLOPs a pair, six of them in both directions.
  const double flops = 6 * 2 * 32 * (96.0 * 97 / 2);
  EXPECT_NEAR(lines[2]["dense_gflops"].get<double>() * lines[1]["fwd_bwd_ms"].get<double>() * 1e6,
              flops, 1e-4 * flops);
}

TEST(NsaBench, AttentionPrintsATableOtherwise) {
  const Outcome outcome = small_bench({"--attention"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* part : {"nsa", "dense", "fwd+bwd ms", "executed GFLOP/s", "of sgemm"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << outcome.out;
  }
}

TEST(NsaBench, EveryOpIsMeasured) {
  const Outcome help = bench({"--op", "nothing"});
  const std::string list = help.err.substr(help.err.find("one of ") + 7);
  std::istringstream names(list);
  std::vector<std::string> ops;
  for (std::string name; names >> name;) {
    if (name.back() == ',') name.pop_back();
    ops.push_back(name);
  }
  EXPECT_EQ(ops.size(), 27U);  // the overloads of Ops::apply
  const Outcome outcome = small_bench({"--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::vector<Json> lines = objects(outcome.out);
  ASSERT_EQ(lines.size(), ops.size() + 1);
  for (std::size_t i = 0; i < ops.size(); ++i) {
    EXPECT_EQ(lines[i]["kind"], "op");
    EXPECT_EQ(lines[i]["op"], ops[i]);
    EXPECT_TRUE(lines[i].contains("gflops"));
    expect_positive(lines[i], {"ms", "gbs", "roof"});
  }
  EXPECT_EQ(lines.back()["kind"], "roof");
  expect_positive(lines.back(), {"sgemm_gflops", "memory_gbs"});
}

TEST(NsaBench, OneOpAloneIsMeasuredInATable) {
  const Outcome outcome = small_bench({"--op", "matmul_forward"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("matmul_forward"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find("adamw"), std::string::npos) << outcome.out;
}

TEST(NsaBench, RateOneIsTimedToo) {
  const Outcome outcome = bench(
      {"--attention", "--json", "--seq", "70", "--heads", "2", "--head-dim", "8", "--rate", "1"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(objects(outcome.out).size(), 3U);
}

TEST(NsaBench, ASequenceShorterThanABlockIsTimedToo) {
  const Outcome outcome =
      bench({"--attention", "--json", "--seq", "7", "--heads", "2", "--head-dim", "8"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(objects(outcome.out).size(), 3U);
}

TEST(NsaBench, WhatItDoesNotHaveIsRefused) {
  expect_refused({"--comm"}, "not in this version");
  expect_refused({"--op", "gemm"}, "matmul_forward");
  expect_refused({"--device", "tpu"}, "cpu or cuda");
}

TEST(NsaBench, BadFlagsExitTwoWithASentence) {
  expect_refused({"--sequence", "8"}, "--sequence");
  expect_refused({"--seq", "0"}, "--seq");
  expect_refused({"--seq", "many"}, "--seq");
  expect_refused({"--attention", "--op", "adamw"}, "--op");
  expect_refused({"--heads", "3", "--kv-heads", "2"}, "--kv-heads");
  expect_refused({"--rate", "3"}, "--rate");
  expect_refused({"--rate", "64", "--overlap", "2"}, "--overlap");
  expect_refused({"--top-n", "2"}, "--top-n");
}

}  // namespace
}  // namespace nsa::test
