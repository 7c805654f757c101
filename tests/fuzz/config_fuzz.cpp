// The configuration: YAML, and behind a NUL byte an override.

#include <vector>

#include "config/parse.h"
#include "fuzz/fuzz.h"

namespace nsa::test {
namespace {

void read_config(const InputFile& file, const std::string& yaml,
                 const std::vector<std::string>& overrides) {
  refuse_or_read(ExitCode::kConfig, [&] {
    std::vector<std::string> warnings;
    const Config config = parse_config(file.write(yaml), overrides, &warnings);
    const std::string printed = print_config(config);
    const Config again = parse_config(file.write(printed), {}, nullptr);
    demand(print_config(again) == printed && config_diff(config, again).empty());
    demand(config_fingerprint(config) == config_fingerprint(again));
  });
}

}  // namespace
}  // namespace nsa::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace nsa::test;
  static const InputFile file("run.yaml");
  const std::string_view all = as_text(data, size);
  const std::size_t end = all.find('\0');
  std::vector<std::string> overrides;
  if (end != std::string_view::npos) overrides.emplace_back(all.substr(end + 1));
  read_config(file, std::string(all.substr(0, end)), overrides);
  return 0;
}
