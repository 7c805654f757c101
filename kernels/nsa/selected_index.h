#pragma once

// The inverse of a selection: for each block the queries that selected it.

#include <cstdint>

#include <cuda_runtime_api.h>

#include "kernels/common/documents.h"
#include "kernels/common/scratch.h"
#include "ops/nsa_geometry.h"

namespace nsa::cuda {

/// Blocks of all documents get ids that grow with their place: block b of document d is
/// bounds[d] / select_block + d + b. Ids leave a few gaps, which have no keys. Lists are numbered
/// kv_head * ids + id. Device pointers.
struct BlockLists {
  std::int64_t ids = 0;
  std::int64_t lists = 0;
  const std::int32_t* block_begin = nullptr;  ///< [ids] token; -1 in a gap
  const std::int32_t* block_end = nullptr;    ///< [ids]
  const std::int32_t* begin = nullptr;        ///< [lists + 1] in queries
  const std::int32_t* queries = nullptr;      ///< tokens, ascending within a list

  // Long lists are worked on in segments: segment s of a list is its queries [s * segment,
  // (s + 1) * segment). Every block has one at least, and with two or more each has a slot.
  std::int64_t segment = 0;
  std::int64_t most_items = 0;  ///< of `items`
  std::int64_t most_slots = 0;
  const int2* items = nullptr;               ///< (list, segment); list -1 after the last
  const std::int32_t* first_slot = nullptr;  ///< [lists]; -1 where there is one segment
};

/// The queries of an op.
struct Selection {
  const std::int32_t* blocks = nullptr;  ///< [tokens, kv_heads, top_n]
  std::int32_t kv_heads = 0, top_n = 0, select_block = 0;
  DocumentView documents{};
};

/// Queues the making of the lists in the frame's memory: counting, two scans and a scatter in
/// query order. About `pieces` segments are made of all queries where no list is long.
BlockLists list_queries(const Selection& selection, std::int64_t pieces, Scratch::Frame& frame,
                        cudaStream_t stream);

}  // namespace nsa::cuda
