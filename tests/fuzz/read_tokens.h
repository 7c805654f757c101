#pragma once

// Everything that training and --check-data do with a data set, on a small scale.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/device.h"
#include "data/loader.h"
#include "data/token_dataset.h"
#include "fuzz/fuzz.h"

namespace nsa::test {

inline void serve_pages(const TokenDataset& data) {
  constexpr std::int64_t kPage = 8;
  constexpr std::int64_t kRows = 4 * kPage;
  const std::unique_ptr<Device> device = make_cpu_device();
  Loader loader(data,
                {.page = kPage, .seed = 1, .doc_mask = data.has_documents(), .max_rows = kRows},
                *device);
  for (int i = 0; i < 8; ++i) loader.next(4, kPage);
}

/// Opens the shard as a data set and reads all of it. Which separator there is follows from the
/// path alone, so that an input always means the same.
inline void read_tokens(const std::string& path, const DatasetOptions& options) {
  constexpr std::int64_t kVocabulary = 1000;
  refuse_or_read(ExitCode::kData, [&] {
    const TokenDataset data({path}, options);
    data.fingerprint();
    data.describe();
    const std::int64_t tokens = data.tokens();
    std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens));
    data.read(0, ids);
    if (tokens > 0) {
      std::vector<std::int32_t> starts;
      data.document_starts(0, tokens, starts);
      demand(std::is_sorted(starts.begin(), starts.end(), std::less_equal<>()));
      demand(starts.empty() || (starts.front() > 0 && starts.back() < tokens));
    }
    const TokenStatistics found = data.check_tokens(kVocabulary);
    demand(found.tokens == tokens && found.unigram_entropy >= 0);
    demand(found.largest_id < kVocabulary);
    serve_pages(data);
  });
}

}  // namespace nsa::test
