#pragma once

// The inverse of a selection: for each block the queries that selected it.

#include <cstdint>

#include <cuda_runtime_api.h>

#include "kernels/common/documents.h"
#include "kernels/common/scratch.h"
#include "ops/nsa_geometry.h"

namespace nsa::cuda {

/// A piece of one list, what one thread block works on: lists.queries[begin, end).
struct alignas(16) ListPart {
  std::int32_t list;  ///< -1 after the last part
  std::int32_t begin, end;
  std::int32_t slot;  ///< of its sums; -1 where the part is the whole list
};

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

  // Lists are worked on in parts, which do not cross the bounds of spans of queries and are not
  // long. Parts of one KV head stand together, those of one span within it, and lists in order
  // within that: what runs side by side reads neighbouring queries. Every block has one part at
  // least. Lists of several parts have a slot for each, in the order of the queries.
  std::int64_t most_parts = 0;  ///< of `parts`
  std::int64_t most_slots = 0;
  const ListPart* parts = nullptr;
  const std::int32_t* first_slot = nullptr;  ///< [lists + 1]: slots of a list end where the next
                                             ///< one's begin
};

/// The queries of an op.
struct Selection {
  const std::int32_t* blocks = nullptr;  ///< [tokens, kv_heads, top_n]
  std::int32_t kv_heads = 0, top_n = 0, select_block = 0;
  DocumentView documents{};
};

/// How lists are cut.
struct ListCut {
  std::int64_t part = std::int64_t{1} << 20;  ///< most queries of a part, at least 1
  std::int64_t span = 0;  ///< tokens of a span, rounded up to what is counted at once; 0: all
};

/// Queues the making of the lists in the frame's memory: counting, scans and a scatter in query
/// order.
BlockLists list_queries(const Selection& selection, const ListCut& cut, Scratch::Frame& frame,
                        cudaStream_t stream);

}  // namespace nsa::cuda
