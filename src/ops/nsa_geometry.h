#pragma once

// The block arithmetic of NSA: pure integers, read by CPU ops, CUDA kernels and tests alike.

#include <algorithm>
#include <cstdint>

namespace nsa {

/// One NSA layer at one stage of the schedule. Counts are tokens; positions are local to the
/// document. Names follow the YAML; the comments give the letters of the NSA paper.
/// Source: NSA (arXiv 2502.11089), sections 3.2 and 3.3.
struct NsaGeometry {
  std::int32_t rate = 16;          ///< d, tokens per compressed token; 1 = no compression
  std::int32_t overlap = 2;        ///< l / d; ignored at rate 1
  std::int32_t select_block = 64;  ///< l'
  std::int32_t top_n = 16;    ///< n, selected blocks per query and KV head, forced ones included
  std::int32_t initial = 1;   ///< forced blocks at the start of the document
  std::int32_t local = 2;     ///< forced blocks up to the current one, which counts
  std::int32_t window = 512;  ///< w, keys in the window, the query itself included

  constexpr std::int32_t compress_stride() const { return rate; }
  constexpr std::int32_t compress_block() const { return rate == 1 ? 1 : overlap * rate; }

  /// Whole compressed blocks in the first `tokens` tokens; the incomplete tail yields none.
  constexpr std::int32_t compressed_blocks(std::int32_t tokens) const {
    return tokens < compress_block() ? 0 : (tokens - compress_block()) / compress_stride() + 1;
  }
  /// Compressed blocks that the query at position t may see: those that end at or before t.
  constexpr std::int32_t visible_blocks(std::int32_t t) const { return compressed_blocks(t + 1); }
  /// First token of compressed block i.
  constexpr std::int32_t compressed_begin(std::int32_t i) const { return i * compress_stride(); }

  /// Selection blocks of a document, the last one possibly partial.
  constexpr std::int32_t selection_blocks(std::int32_t tokens) const {
    return (tokens + select_block - 1) / select_block;
  }
  /// The selection block that holds position t.
  constexpr std::int32_t current_block(std::int32_t t) const { return t / select_block; }
  /// Whether the query at t attends to block j whatever its score. Blocks after the current one
  /// are never candidates.
  constexpr bool is_forced(std::int32_t t, std::int32_t j) const {
    const std::int32_t c = current_block(t);
    return j >= 0 && j <= c && (j < initial || j > c - local);
  }
  /// How many blocks the query at t attends to.
  constexpr std::int32_t blocks_taken(std::int32_t t) const {
    return std::min(top_n, current_block(t) + 1);
  }

  // Which compressed blocks score selection block j (equation 9): those that overlap it, each
  // weighted by the overlap in units of the stride.
  constexpr std::int32_t score_begin(std::int32_t j) const {
    return std::max(0, (select_block / rate) * j - (compress_block() / rate - 1));
  }
  constexpr std::int32_t score_end(std::int32_t j) const { return (select_block / rate) * (j + 1); }
  constexpr std::int32_t score_weight(std::int32_t i, std::int32_t j) const {
    const std::int32_t begin = std::max(i * rate, j * select_block);
    const std::int32_t end = std::min(i * rate + compress_block(), (j + 1) * select_block);
    return end > begin ? (end - begin) / rate : 0;
  }

  /// First key in the window of the query at t.
  constexpr std::int32_t window_begin(std::int32_t t) const { return std::max(0, t - window + 1); }

  friend constexpr bool operator==(const NsaGeometry&, const NsaGeometry&) = default;
};

static_assert(NsaGeometry{}.visible_blocks(30) == 0 && NsaGeometry{}.visible_blocks(31) == 1);
static_assert(NsaGeometry{.rate = 1}.visible_blocks(0) == 1);
static_assert(NsaGeometry{}.score_weight(3, 1) == 1 && NsaGeometry{}.score_weight(4, 1) == 2);

}  // namespace nsa
