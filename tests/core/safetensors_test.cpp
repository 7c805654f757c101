#include "core/safetensors.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "core/error.h"

namespace nsa::test {
namespace {

/// A file of this test alone, gone when the test ends.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& contents) {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::temp_directory_path() /
            ("nsa_safetensors_" + std::to_string(::getpid()) + "_" + test->name() + ".safetensors");
    std::ofstream(path_, std::ios::binary)
        .write(contents.data(), static_cast<std::streamsize>(contents.size()));
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

template <class T>
std::string raw(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::string file_of(const std::string& header, const std::string& data) {
  return raw<std::uint64_t>({header.size()}) + header + data;
}

/// The message of the refusal; fails the test unless it is one of exit code 3 that names the file.
std::string refusal(const std::string& contents) {
  const TemporaryFile file(contents);
  try {
    const Safetensors read(file.path());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    std::string what = error.what();
    EXPECT_NE(what.find(file.path()), std::string::npos) << what;
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    EXPECT_EQ(what.find(".cpp"), std::string::npos) << what;
    return what;
  }
  ADD_FAILURE() << "the file was accepted";
  return "";
}

void expect_refusal(const std::string& contents, const std::string& because) {
  const std::string what = refusal(contents);
  EXPECT_NE(what.find(because), std::string::npos) << what;
}

const char* const kTwoTensors = R"({"b":{"dtype":"I32","shape":[3],"data_offsets":[8,20]},)"
                                R"("a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
                                R"("none":{"dtype":"F64","shape":[0,4],"data_offsets":[8,8]},)"
                                R"("__metadata__":{"kind":"test"}}  )";

std::string two_tensors_data() {
  return raw<float>({1.5F, -2.25F}) + raw<std::int32_t>({7, -1, 9});
}

TEST(Safetensors, ReadsTensorsAndMetadata) {
  const TemporaryFile file(file_of(kTwoTensors, two_tensors_data()));
  const Safetensors read(file.path());
  EXPECT_EQ(read.metadata().at("kind"), "test");
  EXPECT_EQ(read.entries().size(), 3U);
  EXPECT_EQ(read.entry("a").describe(), "F32[1, 2]");
  EXPECT_EQ(read.values("a"), (std::vector<double>{1.5, -2.25}));
  EXPECT_EQ(read.values("b"), (std::vector<double>{7, -1, 9}));
  EXPECT_TRUE(read.values("none").empty());
}

TEST(Safetensors, ReadsDoublesAndLongsExactly) {
  const TemporaryFile file(file_of(R"({"d":{"dtype":"F64","shape":[],"data_offsets":[0,8]},)"
                                   R"("l":{"dtype":"I64","shape":[1],"data_offsets":[8,16]}})",
                                   raw<double>({0.1}) + raw<std::int64_t>({-5000000000})));
  const Safetensors read(file.path());
  EXPECT_EQ(read.values("d"), std::vector<double>{0.1});
  EXPECT_EQ(read.values("l"), std::vector<double>{-5000000000.0});
}

TEST(Safetensors, NamesATensorThatIsMissing) {
  const TemporaryFile file(file_of(kTwoTensors, two_tensors_data()));
  const Safetensors read(file.path());
  EXPECT_THROW(read.values("c"), Error);
  EXPECT_FALSE(read.has("c"));
}

TEST(Safetensors, RefusesAFileThatIsNotThere) {
  EXPECT_THROW(Safetensors("/nonexistent/x.safetensors"), Error);
}

TEST(Safetensors, RefusesAFolder) {
  EXPECT_THROW(Safetensors(std::filesystem::temp_directory_path().string()), Error);
}

TEST(Safetensors, RefusesEveryTruncation) {
  const std::string whole = file_of(kTwoTensors, two_tensors_data());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(refusal(whole.substr(0, size)), "") << size << " bytes";
  }
}

TEST(Safetensors, RefusesBytesAfterTheLastTensor) {
  expect_refusal(file_of(kTwoTensors, two_tensors_data() + "more"), "follow the header");
}

TEST(Safetensors, RefusesAHeaderLengthBeyondTheFile) {
  expect_refusal(raw<std::uint64_t>({~std::uint64_t{0}}) + "{}", "ask for a header of");
}

TEST(Safetensors, RefusesAHeaderThatIsNotAnObject) {
  expect_refusal(file_of("[1, 2]", ""), "not a JSON object");
  expect_refusal(file_of("{\"a\": ", ""), "not a JSON object");
}

TEST(Safetensors, RefusesOverlappingTensors) {
  expect_refusal(file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                         R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
                         std::string(12, '\0')),
                 "begins at byte 4");
}

TEST(Safetensors, RefusesAGapBetweenTensors) {
  expect_refusal(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                         R"("b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
                         std::string(12, '\0')),
                 "begins at byte 8");
}

TEST(Safetensors, RefusesOffsetsThatDoNotFitTheShape) {
  expect_refusal(
      file_of(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", std::string(8, '\0')),
      "takes 12 bytes");
  expect_refusal(
      file_of(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[8,0]}})", std::string(8, '\0')),
      "takes 0 bytes");
}

TEST(Safetensors, RefusesOffsetsBeyondTheData) {
  expect_refusal(
      file_of(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})", std::string(8, '\0')),
      "ends at byte 12");
}

TEST(Safetensors, RefusesNegativeFractionalAndHugeExtents) {
  for (const std::string extent : {"-2", "2.0", "1e3", "\"2\"", "18446744073709551615"}) {
    expect_refusal(
        file_of(R"({"a":{"dtype":"F32","shape":[)" + extent + R"(],"data_offsets":[0,8]}})",
                std::string(8, '\0')),
        "no whole number");
  }
  expect_refusal(file_of(R"({"a":{"dtype":"F32","shape":[1099511627776,1099511627776],)"
                         R"("data_offsets":[0,8]}})",
                         std::string(8, '\0')),
                 "larger than any file");
}

TEST(Safetensors, RefusesUnknownTypesAndMissingFields) {
  expect_refusal(
      file_of(R"({"a":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})", std::string(8, '\0')),
      "unknown dtype 'F33'");
  for (const std::string entry :
       {R"({"shape":[2],"data_offsets":[0,8]})", R"({"dtype":"F32","data_offsets":[0,8]})",
        R"({"dtype":"F32","shape":[2]})", R"({"dtype":"F32","shape":[2],"data_offsets":[0]})",
        R"({"dtype":4,"shape":[2],"data_offsets":[0,8]})", "7"}) {
    expect_refusal(file_of(R"({"a":)" + entry + "}", std::string(8, '\0')), "lacks a dtype");
  }
}

TEST(Safetensors, RefusesMetadataThatIsNotStrings) {
  expect_refusal(file_of(R"({"__metadata__":{"a":1}})", ""), "__metadata__ 'a'");
  expect_refusal(file_of(R"({"__metadata__":3})", ""), "__metadata__");
}

TEST(Safetensors, SaysWhichTypesItCanTurnIntoNumbers) {
  const TemporaryFile file(
      file_of(R"({"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}})", "0123"));
  const Safetensors read(file.path());
  EXPECT_THROW(read.values("a"), Error);
}

TEST(Safetensors, AnExtentNestedWithoutEndIsRefused) {
  constexpr std::size_t kLevels = 1'000'000;  // as many calls, one inside the other, no stack holds
  const std::string extent = std::string(kLevels, '[') + std::string(kLevels, ']');
  expect_refusal(
      file_of(R"({"a":{"dtype":"F32","shape":)" + extent + R"(,"data_offsets":[0,4]}})", "1234"),
      "the extent or offset array");
}

}  // namespace
}  // namespace nsa::test
