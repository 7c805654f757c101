#pragma once

// ShardWriter: one token shard that is being written, whatever its format.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/atomic_file.h"
#include "data/shard_format.h"

namespace nsa {

/// What a shard says of its tokens besides their number, where its format has room for it.
struct ShardLabel {
  std::int64_t vocab_size = 0;
  std::uint32_t tokenizer = 0;
  std::int64_t eos_id = -1;
};

class ShardWriter {
 public:
  ShardWriter() = default;
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;
  virtual ~ShardWriter() = default;

  /// Appends one document, as it stands; an empty one is nothing. Throws Error (code 3) for an id
  /// outside the vocabulary, and for more tokens than the format can count.
  virtual void add_document(std::span<const std::int32_t> ids) = 0;
  virtual std::int64_t tokens() const = 0;
  /// Completes the files (one or two) and gives them away, still to be committed in this order, so
  /// that a set of shards can appear together.
  virtual std::vector<AtomicFile> finish() = 0;
};

/// `path` ends in .bin. Throws Error (code 1) when it cannot be written.
std::unique_ptr<ShardWriter> make_shard_writer(ShardFormat format, const std::string& path,
                                               const ShardLabel& label);

/// Throws Error (code 3), naming the file, for an id that is not in [0, vocab_size).
void check_ids(const std::string& path, std::span<const std::int32_t> ids, std::int64_t vocab_size);
/// Appends ids as little-endian numbers of 2 or 4 bytes.
void write_ids(AtomicFile& file, std::span<const std::int32_t> ids, std::int64_t id_bytes);

}  // namespace nsa
