// The inverse index of a selection: a counting sort whose order is that of the queries, so that
// sums over a list are the same in every run.

#include <algorithm>

#include "core/error.h"
#include "kernels/common/check.h"
#include "kernels/common/reduce.cuh"
#include "kernels/nsa/selected_index.h"

namespace nsa::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kScanThreads = 1024;
/// Queries are counted in at most so many chunks: bounds the table of counts.
constexpr std::int64_t kMostChunks = 512;
constexpr std::int64_t kLeastChunk = 64;
constexpr std::int64_t kLeastSegment = 64;

/// What the kernels below share.
struct Sorter {
  Selection selection;
  std::int32_t ids;
  std::int32_t lists;
  std::int32_t chunk;  ///< queries
  std::int32_t chunks;
  std::int32_t segment;
  std::int32_t* counts;  ///< [kv_heads, chunks, ids]; then where the chunk's first query goes
  std::int32_t* sizes;   ///< [lists]
  std::int32_t* begin;   ///< [lists + 1]
  std::int32_t* queries;
  std::int32_t* block_begin;  ///< [ids]
  std::int32_t* block_end;
  std::int32_t* first_slot;
  int2* items;

  __device__ std::int32_t first_id(std::int32_t token) const {
    const std::int32_t document = selection.documents.of_token[token];
    return selection.documents.bounds[document] / selection.select_block + document;
  }
  __device__ std::int64_t counter(std::int32_t kv_head, std::int32_t chunk_index) const {
    return (static_cast<std::int64_t>(kv_head) * chunks + chunk_index) * ids;
  }
  __device__ const std::int32_t* blocks_of(std::int32_t token, std::int32_t kv_head) const {
    return selection.blocks +
           (static_cast<std::int64_t>(token) * selection.kv_heads + kv_head) * selection.top_n;
  }
};

/// One thread: one token; the first of a block writes where the block stands. block_begin is -1
/// before.
__global__ void block_places_kernel(const Sorter s) {
  const auto token = static_cast<std::int32_t>(blockIdx.x * kThreads + threadIdx.x);
  const DocumentView& documents = s.selection.documents;
  if (token >= documents.tokens) return;
  const std::int32_t document = documents.of_token[token];
  const std::int32_t t = token - documents.bounds[document];
  if (t % s.selection.select_block != 0) return;
  const std::int32_t id = s.first_id(token) + t / s.selection.select_block;
  s.block_begin[id] = token;
  s.block_end[id] = min(token + s.selection.select_block, documents.bounds[document + 1]);
}

/// One block: a chunk of queries of one KV head. Adds to the counts of its chunk, which are 0
/// before; integers, so the order of the additions does not show.
__global__ void count_queries_kernel(const Sorter s) {
  const auto chunk = static_cast<std::int32_t>(blockIdx.x);
  const auto kv_head = static_cast<std::int32_t>(blockIdx.y);
  const std::int32_t first = chunk * s.chunk;
  const std::int32_t tokens = min(s.chunk, s.selection.documents.tokens - first);
  std::int32_t* counts = s.counts + s.counter(kv_head, chunk);
  const std::int64_t slots = static_cast<std::int64_t>(tokens) * s.selection.top_n;
  for (std::int64_t i = threadIdx.x; i < slots; i += kThreads) {
    const std::int32_t token = first + static_cast<std::int32_t>(i / s.selection.top_n);
    const std::int32_t block = s.blocks_of(token, kv_head)[i % s.selection.top_n];
    if (block >= 0) atomicAdd(&counts[s.first_id(token) + block], 1);
  }
}

/// One thread: one list. Counts of its chunks become the sums of those before; their total is the
/// size of the list.
__global__ void chunk_offsets_kernel(const Sorter s) {
  const auto list = static_cast<std::int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (list >= s.lists) return;
  std::int32_t* count = s.counts + s.counter(list / s.ids, 0) + list % s.ids;
  std::int32_t sum = 0;
#pragma unroll 8
  for (std::int32_t chunk = 0; chunk < s.chunks; ++chunk, count += s.ids) {
    const std::int32_t size = *count;
    *count = sum;
    sum += size;
  }
  s.sizes[list] = sum;
}

/// Sums of what stands before each thread of the block, and of all.
struct BlockScan {
  std::int32_t before;
  std::int32_t total;
};
__device__ BlockScan scan_block(std::int32_t value) {
  __shared__ std::int32_t sums[kScanThreads / kWarpSize];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  std::int32_t sum = value;
  for (int step = 1; step < kWarpSize; step *= 2) {
    const std::int32_t left = __shfl_up_sync(0xFFFFFFFFU, sum, step);
    if (lane >= step) sum += left;
  }
  __syncthreads();  // the last call's sums are read
  if (lane == kWarpSize - 1) sums[warp] = sum;
  __syncthreads();
  BlockScan scan{sum - value, 0};
  for (int i = 0; i < kScanThreads / kWarpSize; ++i) {
    if (i < warp) scan.before += sums[i];
    scan.total += sums[i];
  }
  return scan;
}

/// One block of kScanThreads in all: where each list begins, its segments and their slots. items
/// hold -1 before.
__global__ void __launch_bounds__(kScanThreads) list_offsets_kernel(const Sorter s) {
  std::int32_t queries = 0;
  std::int32_t items = 0;
  std::int32_t slots = 0;
  for (std::int32_t first = 0; first < s.lists; first += kScanThreads) {
    const std::int32_t list = first + static_cast<std::int32_t>(threadIdx.x);
    const bool real = list < s.lists;
    const std::int32_t size = real ? s.sizes[list] : 0;
    const bool is_block = real && s.block_begin[list % s.ids] >= 0;
    const std::int32_t segments = is_block ? max(1, (size + s.segment - 1) / s.segment) : 0;
    const std::int32_t kept = segments > 1 ? segments : 0;
    const BlockScan query_scan = scan_block(size);
    const BlockScan item_scan = scan_block(segments);
    const BlockScan slot_scan = scan_block(kept);
    if (real) {
      s.begin[list] = queries + query_scan.before;
      s.first_slot[list] = kept > 0 ? slots + slot_scan.before : -1;
      for (std::int32_t i = 0; i < segments; ++i) {
        s.items[items + item_scan.before + i] = make_int2(list, i);
      }
    }
    queries += query_scan.total;
    items += item_scan.total;
    slots += slot_scan.total;
  }
  if (threadIdx.x == 0) s.begin[s.lists] = queries;
}

/// One warp: a chunk of queries of one KV head, one query after the other. The blocks of a query
/// are distinct, so no two lanes ask one counter at once and the order of a list is the queries'.
__global__ void scatter_queries_kernel(const Sorter s) {
  const auto chunk = static_cast<std::int32_t>(blockIdx.x);
  const auto kv_head = static_cast<std::int32_t>(blockIdx.y);
  const std::int32_t first = chunk * s.chunk;
  const std::int32_t end = min(first + s.chunk, s.selection.documents.tokens);
  std::int32_t* counts = s.counts + s.counter(kv_head, chunk);
  const std::int32_t* begin = s.begin + static_cast<std::int64_t>(kv_head) * s.ids;
  for (std::int32_t token = first; token < end; ++token) {
    const std::int32_t first_id = s.first_id(token);
    const std::int32_t* blocks = s.blocks_of(token, kv_head);
    for (auto slot = static_cast<std::int32_t>(threadIdx.x); slot < s.selection.top_n;
         slot += kWarpSize) {
      const std::int32_t block = blocks[slot];
      if (block < 0) continue;
      const std::int32_t id = first_id + block;
      s.queries[begin[id] + atomicAdd(&counts[id], 1)] = token;
    }
    __syncwarp();
  }
}

unsigned grid_of(std::int64_t count) {
  return static_cast<unsigned>((count + kThreads - 1) / kThreads);
}

}  // namespace

BlockLists list_queries(const Selection& selection, std::int64_t pieces, Scratch::Frame& frame,
                        cudaStream_t stream) {
  const std::int64_t tokens = selection.documents.tokens;
  const std::int64_t slots = tokens * selection.kv_heads * selection.top_n;
  BlockLists lists;
  lists.ids = tokens / selection.select_block + selection.documents.count + 1;
  lists.lists = lists.ids * selection.kv_heads;
  constexpr std::int64_t kMost = 0x7FFFFFFF;
  nsa::check(slots <= kMost && lists.lists < kMost,
             "selected attention: more selections than the backward of one batch can list");
  lists.segment = std::max(kLeastSegment, (slots + pieces - 1) / pieces);
  lists.most_items = slots / lists.segment + lists.lists;
  lists.most_slots = 2 * (slots / lists.segment);  // a list with slots is longer than a segment
  const std::int64_t chunk = std::max(kLeastChunk, (tokens + kMostChunks - 1) / kMostChunks);
  const std::int64_t chunks = (tokens + chunk - 1) / chunk;
  const std::int64_t counts = selection.kv_heads * chunks * lists.ids;

  Sorter s{.selection = selection,
           .ids = static_cast<std::int32_t>(lists.ids),
           .lists = static_cast<std::int32_t>(lists.lists),
           .chunk = static_cast<std::int32_t>(chunk),
           .chunks = static_cast<std::int32_t>(chunks),
           .segment = static_cast<std::int32_t>(lists.segment),
           .counts = frame.take<std::int32_t>(counts),
           .sizes = frame.take<std::int32_t>(lists.lists),
           .begin = frame.take<std::int32_t>(lists.lists + 1),
           .queries = frame.take<std::int32_t>(slots),
           .block_begin = frame.take<std::int32_t>(lists.ids),
           .block_end = frame.take<std::int32_t>(lists.ids),
           .first_slot = frame.take<std::int32_t>(lists.lists),
           .items = frame.take<int2>(lists.most_items)};
  const auto fill = [&](void* data, int byte, std::int64_t bytes) {
    check(cudaMemsetAsync(data, byte, static_cast<std::size_t>(bytes), stream));
  };
  fill(s.counts, 0, counts * 4);
  fill(s.block_begin, 0xFF, lists.ids * 4);
  fill(s.items, 0xFF, lists.most_items * 8);
  const dim3 pieces_grid(static_cast<unsigned>(chunks), static_cast<unsigned>(selection.kv_heads));
  if (tokens > 0) {
    block_places_kernel<<<grid_of(tokens), kThreads, 0, stream>>>(s);
    check_launch("block_places_kernel");
    count_queries_kernel<<<pieces_grid, kThreads, 0, stream>>>(s);
    check_launch("count_queries_kernel");
  }
  chunk_offsets_kernel<<<grid_of(lists.lists), kThreads, 0, stream>>>(s);
  check_launch("chunk_offsets_kernel");
  list_offsets_kernel<<<1, kScanThreads, 0, stream>>>(s);
  check_launch("list_offsets_kernel");
  if (tokens > 0) {
    scatter_queries_kernel<<<pieces_grid, kWarpSize, 0, stream>>>(s);
    check_launch("scatter_queries_kernel");
  }
  lists.block_begin = s.block_begin;
  lists.block_end = s.block_end;
  lists.begin = s.begin;
  lists.queries = s.queries;
  lists.items = s.items;
  lists.first_slot = s.first_slot;
  return lists;
}

}  // namespace nsa::cuda
