// Text as nsa_tokenize reads it: JSONL and plain, packed or not, with any bytes in it.

#include "data/corpus.h"
#include "data/utf8.h"
#include "fuzz/fuzz.h"

namespace nsa::test {
namespace {

void read_text(const std::string& path, bool skip_bad_lines) {
  refuse_or_read(ExitCode::kData, [&] {
    CorpusOptions options;
    options.paths = {path};
    options.skip_bad_lines = skip_bad_lines;
    std::int64_t bytes = 0;
    std::string again;
    const CorpusCounts counts = read_corpus(options, [&](std::string_view text) {
      bytes += static_cast<std::int64_t>(text.size());
      again.clear();
      demand(append_repaired(text, again) == 0 && again == text);  // what it hands out is valid
    });
    demand(counts.bytes == bytes && counts.documents <= bytes);
  });
}

}  // namespace
}  // namespace nsa::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace nsa::test;
  static const InputFile lines("lines.jsonl");
  static const InputFile plain("plain.txt");
  const std::string path = lines.write(as_text(data, size));
  read_text(path, true);
  read_text(path, false);
  read_text(plain.write(as_text(data, size)), false);
  return 0;
}
