// The programs with standard streams that are closed, full, or read by nobody.

#include <fcntl.h>
#include <unistd.h>

#include "promises/tiny_run.h"

namespace nsa::test {
namespace {

const std::string kTrain = std::string(NSA_BINARY_DIR) + "/nsa_train";
const std::string kTokenize = std::string(NSA_BINARY_DIR) + "/nsa_tokenize";
const std::string kGolden = std::string(NSA_BINARY_DIR) + "/nsa_golden";
const std::string kGoldenFile = std::string(NSA_SOURCE_DIR) + "/tests/golden/T_lt_l.safetensors";

constexpr const char* kAllClosed = "<&- >&- 2>&-";
constexpr const char* kNoInput = "<&-";
constexpr const char* kFullOutput = ">/dev/full";
constexpr const char* kFullErrors = "2>/dev/full";

/// Runs the program as a shell starts it with these redirections.
Outcome redirected(const std::string& redirections, const std::vector<std::string>& program) {
  std::vector<std::string> arguments = {"/bin/sh", "-c", R"(exec "$0" "$@" )" + redirections};
  arguments.insert(arguments.end(), program.begin(), program.end());
  return run_program(arguments);
}

/// The end of a pipe whose reader has left, as a number that a shell can name and a child inherits.
class AbandonedPipe {
 public:
  AbandonedPipe() {
    int ends[2] = {};
    check(pipe2(ends, O_CLOEXEC) == 0, "AbandonedPipe: no pipe");
    close(ends[0]);
    end_ = fcntl(ends[1], F_DUPFD, 3);
    close(ends[1]);
    check(end_ >= 3 && end_ <= 9, "AbandonedPipe: shells name numbers of one digit");
  }
  AbandonedPipe(const AbandonedPipe&) = delete;
  AbandonedPipe& operator=(const AbandonedPipe&) = delete;
  ~AbandonedPipe() { close(end_); }
  std::string as_output() const { return ">&" + std::to_string(end_); }
  std::string as_output_and_errors() const { return as_output() + " 2>&" + std::to_string(end_); }

 private:
  int end_ = -1;
};

class Streams : public TinyRun {
 protected:
  std::vector<std::string> training(const std::string& name) const {
    return {kTrain, "--config", (folder_ / "run.yaml").string(), "--override",
            "run.out_dir=" + out(name).string()};
  }
  /// nsa_train that only answers.
  std::vector<std::string> asking(const std::string& flag) const {
    std::vector<std::string> arguments = training("unused");
    arguments.push_back(flag);
    return arguments;
  }
  std::vector<std::string> encoding(const std::string& name) const {
    return {kTokenize, "encode",
            "--model", (folder_ / "text.model").string(),
            "--in",    (folder_ / "text.jsonl").string(),
            "--out",   (folder_ / name).string()};
  }
  std::string shard(const std::string& name) const {
    return slurp(folder_ / (name + "_00000.bin"));
  }
};

TEST_F(Streams, TrainingWithoutAnyWritesTheSameFiles) {
  ASSERT_EQ(train("shown").code, 0);
  EXPECT_EQ(redirected(kAllClosed, training("closed")).code, 0);
  expect_same_run("closed", "shown");
  const AbandonedPipe pipe;
  EXPECT_EQ(redirected(pipe.as_output_and_errors(), training("unread")).code, 0);
  expect_same_run("unread", "shown");
  EXPECT_EQ(redirected(kFullOutput, training("full")).code, 0);
  expect_same_run("full", "shown");
}

TEST_F(Streams, TokenizingWithoutAnyWritesTheSameShards) {
  ASSERT_EQ(run_program(encoding("shown")).code, 0);
  EXPECT_EQ(redirected(kAllClosed, encoding("closed")).code, 0);
  EXPECT_TRUE(shard("closed") == shard("shown"));
  const AbandonedPipe pipe;
  EXPECT_EQ(redirected(pipe.as_output_and_errors(), encoding("unread")).code, 0);
  EXPECT_TRUE(shard("unread") == shard("shown"));
}

TEST_F(Streams, ATokenizerTrainedWithoutAnyIsTheSame) {
  const std::string model = (folder_ / "closed.model").string();
  const std::string text = (folder_ / "text.jsonl").string();
  EXPECT_EQ(redirected(kAllClosed,
                       {kTokenize, "train", "--in", text, "--vocab-size", "320", "--out", model})
                .code,
            0);
  EXPECT_TRUE(slurp(model) == slurp(folder_ / "text.model"));
}

TEST_F(Streams, AnAnswerThatDoesNotArriveExitsOne) {
  const AbandonedPipe pipe;
  for (const char* flag : {"--version", "--help", "--print-config", "--plan", "--check-data"}) {
    for (const std::string& lost : {std::string(kFullOutput), pipe.as_output()}) {
      const Outcome outcome = redirected(lost, asking(flag));
      EXPECT_EQ(outcome.code, 1) << flag << " " << lost;
      EXPECT_NE(outcome.err.find("could be written to stdout"), std::string::npos)
          << flag << " " << lost << ": " << outcome.err;
    }
    EXPECT_EQ(redirected(kAllClosed, asking(flag)).code, 0) << flag;
    EXPECT_FALSE(redirected(kNoInput, asking(flag)).out.empty()) << flag;
  }
}

TEST_F(Streams, AFailureKeepsItsExitCodeWhereNobodyCanReadIt) {
  std::vector<std::string> broken = training("run");
  broken.insert(broken.end(), {"--override", "data.train=[nowhere_*.bin]"});
  const AbandonedPipe pipe;
  for (const std::string& lost :
       {std::string(kAllClosed), std::string(kFullErrors), pipe.as_output_and_errors()}) {
    EXPECT_EQ(redirected(lost, broken).code, 3) << lost;
  }
}

TEST(GoldenStreams, ResultsThatDoNotArriveExitOne) {
  const std::vector<std::string> golden = {kGolden, kGoldenFile};
  const AbandonedPipe pipe;
  for (const std::string& lost : {std::string(kFullOutput), pipe.as_output()}) {
    const Outcome outcome = redirected(lost, golden);
    EXPECT_EQ(outcome.code, 1) << lost;
    EXPECT_NE(outcome.err.find("could be written to stdout"), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(redirected(kAllClosed, golden).code, 0);
  EXPECT_EQ(redirected(kAllClosed, {kGolden, kGoldenFile + ".absent"}).code, 3);
}

}  // namespace
}  // namespace nsa::test
