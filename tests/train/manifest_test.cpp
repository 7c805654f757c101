#include "train/manifest.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/checksum.h"
#include "core/error.h"
#include "support/errors.h"
#include "train/stored_model.h"

namespace nsa {
namespace {

Manifest some_manifest() {
  Manifest manifest;
  manifest.library_version = "0.1.0";
  manifest.layout = 0xFFFFFFFE;
  manifest.dtype = DType::kF64;
  manifest.state = test::some_state(17);
  manifest.files = {{.name = "rank_00000.bin", .bytes = std::int64_t{1} << 40, .checksum = 5}};
  manifest.ranges = {{.bucket = "block.0",
                      .begin = 64,
                      .end = 128,
                      .file = "rank_00000.bin",
                      .master = 0,
                      .m = 512,
                      .v = 1024}};
  manifest.parameters = {{.name = "blocks.0.attn.q", .shape = {8, 16}, .updates = 12}};
  return manifest;
}

TEST(Manifest, ComesBackAsItWasWritten) {
  const Manifest written = some_manifest();
  const Manifest read = parse_manifest(to_json(written));
  EXPECT_EQ(read.state, written.state);
  EXPECT_EQ(read.layout, written.layout);
  EXPECT_EQ(read.dtype, written.dtype);
  EXPECT_EQ(read.files.at(0).bytes, written.files.at(0).bytes);
  EXPECT_EQ(read.ranges.at(0).v, written.ranges.at(0).v);
  EXPECT_EQ(read.parameters.at(0).shape, written.parameters.at(0).shape);
  EXPECT_EQ(to_json(read), to_json(written));
}

TEST(Manifest, MayLackTheWallTime) {
  Manifest manifest = some_manifest();
  auto json = nlohmann::ordered_json::parse(to_json(manifest));
  json["state"].erase("wall_seconds");
  json.erase("manifest_crc32");
  const std::string bare = json.dump();
  json["manifest_crc32"] = crc32(0, bare.data(), static_cast<std::int64_t>(bare.size()));
  manifest.state.wall_seconds = 0;
  EXPECT_EQ(parse_manifest(json.dump()).state, manifest.state);
}

TEST(Manifest, NoCharacterOfItCanBeLostUnnoticed) {
  const std::string text = to_json(some_manifest());
  for (std::size_t length = 0; length + 2 < text.size(); length += 7) {
    EXPECT_THROW(parse_manifest(text.substr(0, length)), Error) << length;
  }
}

TEST(Manifest, AChangedDigitIsNoticed) {
  Manifest manifest = some_manifest();
  manifest.state.last_validation->loss = 2.25;  // no digits beyond what a double can tell apart
  const std::string text = to_json(manifest);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] < '0' || text[i] > '9') continue;
    std::string changed = text;
    changed[i] = text[i] == '3' ? '4' : '3';
    EXPECT_THROW(parse_manifest(changed), Error) << text.substr(i, 20);
  }
}

TEST(Manifest, AnotherFormatVersionIsNamed) {
  std::string text = to_json(some_manifest());
  text.replace(text.find("\"format\": 1"), 11, "\"format\": 2");
  try {
    parse_manifest(text);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("format 2"), std::string::npos) << error.what();
    EXPECT_EQ(error.code(), ExitCode::kCheckpoint);
  }
}

TEST(Manifest, TextNestedWithoutEndIsRefused) {
  constexpr std::size_t kLevels = 1'000'000;  // as many calls, one inside the other, no stack holds
  const std::string deep = std::string(kLevels, '[') + std::string(kLevels, ']');
  try {
    parse_manifest(R"({"format": 1, "manifest_crc32": 0, "deep": )" + deep + "}");
    ADD_FAILURE() << "the text was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kCheckpoint);
    EXPECT_NE(std::string(error.what()).find("nested deeper"), std::string::npos) << error.what();
  }
}

/// Other text in place of a value, under a checksum that agrees.
std::string sealed(const std::string& from, const std::string& to) {
  std::string text = to_json(some_manifest());
  text.replace(text.find(from), from.size(), to);
  auto json = nlohmann::ordered_json::parse(text);
  json.erase("manifest_crc32");
  const std::string body = json.dump();
  json["manifest_crc32"] = crc32(0, body.data(), static_cast<std::int64_t>(body.size()));
  return json.dump();
}

TEST(Manifest, ANumberThatIsNotWholeOrDoesNotFitIsRefused) {
  EXPECT_EQ(parse_manifest(sealed("\"step\": 17", "\"step\": 18")).state.step, 18);
  for (const char* number : {"1e300", "17.5", "17.0", "9223372036854775808", "\"17\"", "null"}) {
    test::expect_error(
        ExitCode::kCheckpoint, {"manifest.json has", "as step, wanted a whole number"},
        [&] { parse_manifest(sealed("\"step\": 17", std::string("\"step\": ") + number)); });
  }
  for (const char* number : {"-1", "4294967296"}) {
    test::expect_error(
        ExitCode::kCheckpoint, {number, "as layout, wanted a whole number from 0 to"}, [&] {
          parse_manifest(sealed("\"layout\": 4294967294", std::string("\"layout\": ") + number));
        });
  }
}

}  // namespace
}  // namespace nsa
