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
constexpr std::int64_t kMost = 0x7FFFFFFF;

/// What the kernels below share.
struct Sorter {
  Selection selection;
  std::int32_t ids;
  std::int32_t lists;
  std::int32_t chunk;  ///< queries
  std::int32_t chunks;
  std::int32_t spans;
  std::int32_t span_chunks;
  std::int32_t part;
  std::int32_t* counts;  ///< [kv_heads, chunks, ids]; then where the chunk's first query goes
  std::int32_t* before;  ///< [kv_heads, spans, ids]: queries of the list in earlier spans
  std::int32_t* sizes;   ///< [lists]
  std::int32_t* begin;   ///< [lists + 1]
  std::int32_t* queries;
  std::int32_t* block_begin;  ///< [ids]
  std::int32_t* block_end;
  std::int32_t* first_slot;  ///< [lists + 1]
  ListPart* parts;

  __device__ std::int32_t first_id(std::int32_t token) const {
    const std::int32_t document = selection.documents.of_token[token];
    return selection.documents.bounds[document] / selection.select_block + document;
  }
  __device__ std::int64_t counter(std::int32_t kv_head, std::int32_t chunk_index) const {
    return (static_cast<std::int64_t>(kv_head) * chunks + chunk_index) * ids;
  }
  /// Of `before`.
  __device__ std::int32_t cell(std::int32_t list, std::int32_t span) const {
    return (list / ids * spans + span) * ids + list % ids;
  }
  /// The queries of a list in a span: where they begin, how many.
  __device__ int2 range(std::int32_t list, std::int32_t span) const {
    const std::int32_t first = before[cell(list, span)];
    const std::int32_t end = span + 1 < spans ? before[cell(list, span + 1)] : sizes[list];
    return make_int2(first, end - first);
  }
  /// Parts of them; a list without queries has its one in the first span.
  __device__ std::int32_t parts_of(std::int32_t list, std::int32_t span) const {
    if (block_begin[list % ids] < 0) return 0;
    if (sizes[list] == 0) return span == 0 ? 1 : 0;
    return (range(list, span).y + part - 1) / part;
  }
  __device__ std::int32_t parts_before(std::int32_t list, std::int32_t span) const {
    std::int32_t sum = 0;
    for (std::int32_t earlier = 0; earlier < span; ++earlier) sum += parts_of(list, earlier);
    return sum;
  }
  __device__ std::int32_t slots_of(std::int32_t list) const {
    const std::int32_t count = parts_before(list, spans);
    return count > 1 ? count : 0;
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
  for (std::int32_t span = 0; span < s.spans; ++span) {
    s.before[s.cell(list, span)] = sum;
    const std::int32_t end = min((span + 1) * s.span_chunks, s.chunks);
#pragma unroll 8
    for (std::int32_t chunk = span * s.span_chunks; chunk < end; ++chunk, count += s.ids) {
      const std::int32_t size = *count;
      *count = sum;
      sum += size;
    }
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

/// Calls place(i, sum of size(0) .. size(i - 1)) for i below `count`, each thread of the block for
/// neighbours; gives the sum of all.
template <class Size, class Place>
__device__ std::int32_t place_in_order(std::int32_t count, Size&& size, Place&& place) {
  const std::int32_t run = (count + kScanThreads - 1) / kScanThreads;
  const std::int32_t first = min(static_cast<std::int32_t>(threadIdx.x) * run, count);
  const std::int32_t end = min(first + run, count);
  std::int32_t own = 0;
  for (std::int32_t i = first; i < end; ++i) own += size(i);
  const BlockScan scan = scan_block(own);
  std::int32_t before = scan.before;
  for (std::int32_t i = first; i < end; ++i) {
    place(i, before);
    before += size(i);
  }
  return scan.total;
}

/// One block of kScanThreads in all: where each list begins, its parts and their slots. parts hold
/// -1 before.
__global__ void __launch_bounds__(kScanThreads) list_offsets_kernel(const Sorter s) {
  const std::int32_t queries = place_in_order(
      s.lists, [&](std::int32_t list) { return s.sizes[list]; },
      [&](std::int32_t list, std::int32_t before) { s.begin[list] = before; });
  const std::int32_t slots = place_in_order(
      s.lists, [&](std::int32_t list) { return s.slots_of(list); },
      [&](std::int32_t list, std::int32_t before) { s.first_slot[list] = before; });
  if (threadIdx.x == 0) {
    s.begin[s.lists] = queries;
    s.first_slot[s.lists] = slots;
  }
  __syncthreads();
  const auto list_of = [&](std::int32_t cell) {
    return cell / (s.ids * s.spans) * s.ids + cell % s.ids;
  };
  const auto span_of = [&](std::int32_t cell) { return cell / s.ids % s.spans; };
  place_in_order(
      s.lists * s.spans,
      [&](std::int32_t cell) { return s.parts_of(list_of(cell), span_of(cell)); },
      [&](std::int32_t cell, std::int32_t before) {
        const std::int32_t list = list_of(cell);
        const std::int32_t span = span_of(cell);
        const std::int32_t parts = s.parts_of(list, span);
        if (parts == 0) return;
        const int2 range = s.range(list, span);
        const std::int32_t begin = s.begin[list] + range.x;
        const bool whole = s.first_slot[list] == s.first_slot[list + 1];
        const std::int32_t slot = s.first_slot[list] + s.parts_before(list, span);
        for (std::int32_t i = 0; i < parts; ++i) {
          s.parts[before + i] = {list, begin + i * s.part, begin + min((i + 1) * s.part, range.y),
                                 whole ? -1 : slot + i};
        }
      });
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

/// What the slots can come to. A list that one span holds has slots where it is longer than a part:
/// at most 2 n / part for n queries. One that several spans hold has a part more in each: only
/// lists of a document that crosses the end of a span are such, one document at each end, so that
/// the blocks of a span's two are at most those up to its end. `parts` are those of all queries in
/// one list.
std::int64_t slots_bound(const Selection& selection, const BlockLists& lists, std::int64_t parts,
                         std::int64_t span) {
  const std::int64_t tokens = selection.documents.tokens;
  if (tokens <= span) return 2 * parts;
  std::int64_t cells = 0;
  for (std::int64_t end = span; end < tokens + span; end += span) {
    cells += std::min(end / selection.select_block + 3, lists.ids);
  }
  return 2 * parts + cells * selection.kv_heads;
}

}  // namespace

BlockLists list_queries(const Selection& selection, const ListCut& cut, Scratch::Frame& frame,
                        cudaStream_t stream) {
  const std::int64_t tokens = selection.documents.tokens;
  const std::int64_t slots = tokens * selection.kv_heads * selection.top_n;
  BlockLists lists;
  lists.ids = tokens / selection.select_block + selection.documents.count + 1;
  lists.lists = lists.ids * selection.kv_heads;
  const std::int64_t chunk = std::max(kLeastChunk, (tokens + kMostChunks - 1) / kMostChunks);
  const std::int64_t chunks = (tokens + chunk - 1) / chunk;
  const std::int64_t span_chunks =
      cut.span == 0 ? std::max<std::int64_t>(chunks, 1) : (cut.span + chunk - 1) / chunk;
  const std::int64_t spans = std::max<std::int64_t>((chunks + span_chunks - 1) / span_chunks, 1);
  const std::int64_t part = std::max<std::int64_t>(cut.part, 1);
  nsa::check(slots <= kMost && lists.lists * spans < kMost,
             "selected attention: more selections than the backward of one batch can list");
  lists.most_parts = slots / part + lists.lists * spans;
  lists.most_slots = slots_bound(selection, lists, slots / part, span_chunks * chunk);
  const std::int64_t counts = selection.kv_heads * chunks * lists.ids;

  Sorter s{.selection = selection,
           .ids = static_cast<std::int32_t>(lists.ids),
           .lists = static_cast<std::int32_t>(lists.lists),
           .chunk = static_cast<std::int32_t>(chunk),
           .chunks = static_cast<std::int32_t>(chunks),
           .spans = static_cast<std::int32_t>(spans),
           .span_chunks = static_cast<std::int32_t>(span_chunks),
           .part = static_cast<std::int32_t>(part),
           .counts = frame.take<std::int32_t>(counts),
           .before = frame.take<std::int32_t>(lists.lists * spans),
           .sizes = frame.take<std::int32_t>(lists.lists),
           .begin = frame.take<std::int32_t>(lists.lists + 1),
           .queries = frame.take<std::int32_t>(slots),
           .block_begin = frame.take<std::int32_t>(lists.ids),
           .block_end = frame.take<std::int32_t>(lists.ids),
           .first_slot = frame.take<std::int32_t>(lists.lists + 1),
           .parts = frame.take<ListPart>(lists.most_parts)};
  const auto fill = [&](void* data, int byte, std::int64_t bytes) {
    check(cudaMemsetAsync(data, byte, static_cast<std::size_t>(bytes), stream));
  };
  fill(s.counts, 0, counts * 4);
  fill(s.block_begin, 0xFF, lists.ids * 4);
  fill(s.parts, 0xFF, lists.most_parts * static_cast<std::int64_t>(sizeof(ListPart)));
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
  lists.parts = s.parts;
  lists.first_slot = s.first_slot;
  return lists;
}

}  // namespace nsa::cuda
