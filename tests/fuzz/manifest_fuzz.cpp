// The manifest of a checkpoint. An input serves twice: as it is, and with the checksum that belongs
// to it, which mutations cannot guess.

#include <nlohmann/json.hpp>

#include "core/checksum.h"
#include "fuzz/fuzz.h"
#include "train/manifest.h"

namespace nsa::test {
namespace {

void read_manifest(const std::string& text) {
  refuse_or_read(ExitCode::kCheckpoint, [&] {
    const std::string written = to_json(parse_manifest(text));
    demand(to_json(parse_manifest(written)) == written);
  });
}

void read_sealed(const std::string& text) {
  constexpr const char* kChecksum = "manifest_crc32";
  // Deep nesting would overflow the stack of dump(): what lies deeper is left out.
  const auto is_shallow = [](int depth, auto, auto&) { return depth < 64; };
  auto json = nlohmann::ordered_json::parse(text, is_shallow, /*allow_exceptions=*/false);
  if (!json.is_object()) return;
  json.erase(kChecksum);
  const std::string body = json.dump();
  json[kChecksum] = crc32(0, body.data(), static_cast<std::int64_t>(body.size()));
  read_manifest(json.dump());
}

}  // namespace
}  // namespace nsa::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(nsa::test::as_text(data, size));
  nsa::test::read_manifest(text);
  nsa::test::read_sealed(text);
  return 0;
}
