#pragma once

// Shards for the tests of this layer.

#include <cstdint>
#include <string>
#include <vector>

#include "core/philox.h"
#include "data/nsa_shard.h"
#include "data/shard_writer.h"

namespace nsa::test {

using Ids = std::vector<std::int32_t>;

/// Writes documents as one shard.
inline void write_shard(const std::string& path, const std::vector<Ids>& documents,
                        const ShardLabel& label = {.vocab_size = 512, .tokenizer = 7, .eos_id = 1},
                        ShardFormat format = ShardFormat::kNsa) {
  const auto writer = make_shard_writer(format, path, label);
  for (const Ids& document : documents) writer->add_document(document);
  for (AtomicFile& file : writer->finish()) file.commit();
}

/// Token p of the joined data has id p, so that a row tells where it came from.
inline Ids counting(std::int32_t begin, std::int32_t end) {
  Ids ids;
  for (std::int32_t id = begin; id < end; ++id) ids.push_back(id);
  return ids;
}

/// One document of ids in [0, vocab_size) after the other, of `lengths` tokens.
inline std::vector<Ids> random_documents(std::uint64_t seed, std::int32_t vocab_size,
                                         const std::vector<std::int64_t>& lengths) {
  std::vector<Ids> documents;
  std::uint64_t at = 0;
  for (const std::int64_t length : lengths) {
    Ids& ids = documents.emplace_back();
    for (std::int64_t i = 0; i < length; ++i) {
      ids.push_back(static_cast<std::int32_t>(philox(seed, 0, at++)[0] %
                                              static_cast<std::uint32_t>(vocab_size)));
    }
  }
  return documents;
}

inline Ids joined(const std::vector<Ids>& documents) {
  Ids all;
  for (const Ids& document : documents) all.insert(all.end(), document.begin(), document.end());
  return all;
}

}  // namespace nsa::test
