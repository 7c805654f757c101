// Token shards that are one file: nsa and llm.c, told apart by their first bytes.

#include "fuzz/read_tokens.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace nsa::test;
  static const InputFile file("tokens.bin");
  const std::string path = file.write(as_text(data, size));
  read_tokens(path, {});
  read_tokens(path, {.format = {}, .separator = nsa::Separator{.id = 3, .before = true}});
  read_tokens(path, {.format = {}, .separator = nsa::Separator{.id = 3, .before = false}});
  return 0;
}
