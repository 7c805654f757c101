// Tensor files. An input serves twice: as a file, and as the header of one, for whose length the
// mutations would otherwise have to guess eight bytes.

#include "core/safetensors.h"
#include "fuzz/fuzz.h"

namespace nsa::test {
namespace {

void read_tensors(const std::string& path) {
  refuse_or_read(ExitCode::kData, [&] {
    const Safetensors file(path);
    for (const auto& [name, entry] : file.entries()) {
      demand(!entry.describe().empty());
      refuse_or_read(ExitCode::kData, [&, &name = name, &entry = entry] {
        demand(static_cast<std::int64_t>(file.values(name).size()) == entry.count());
      });
    }
  });
}

std::string with_length(std::string_view header) {
  constexpr std::size_t kData = 32;
  std::string bytes;
  for (unsigned shift = 0; shift < 64; shift += 8) {
    bytes += static_cast<char>((header.size() >> shift) & 0xFFU);
  }
  bytes.append(header);
  return bytes + std::string(kData, '\1');
}

}  // namespace
}  // namespace nsa::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace nsa::test;
  static const InputFile file("tensors.safetensors");
  read_tensors(file.write(as_text(data, size)));
  read_tensors(file.write(with_length(as_text(data, size))));
  return 0;
}
