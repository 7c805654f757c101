// The index of a Megatron pair; the tokens beside it are always the same.

#include "fuzz/read_tokens.h"

namespace nsa::test {
namespace {

/// A folder with NAME.bin, in which each input becomes NAME.idx.
class Pair {
 public:
  Pair() {
    constexpr int kTokenBytes = 512;
    std::string tokens;
    for (int i = 0; i < kTokenBytes; ++i) tokens += static_cast<char>(i % 3);
    spill(folder_ / "pair.bin", tokens);
  }
  std::string write_index(std::string_view bytes) const {
    spill(folder_ / "pair.idx", std::string(bytes));
    return (folder_ / "pair.bin").string();
  }

 private:
  TempFolder folder_;
};

}  // namespace
}  // namespace nsa::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace nsa::test;
  static const Pair pair;
  read_tokens(pair.write_index(as_text(data, size)), {});
  return 0;
}
