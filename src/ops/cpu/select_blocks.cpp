#include <algorithm>

#include "ops/cpu/block_choice.h"
#include "ops/cpu/cpu_ops.h"

namespace nsa::cpu {
namespace {

/// Whether a comes before b in the order of choice: a total order.
template <class T>
bool precedes(const Candidate<T>& a, const Candidate<T>& b) {
  return a.score > b.score || (a.score == b.score && a.block < b.block);
}

/// Queries in one piece of parallel work.
constexpr std::int64_t kPieceQueries = 64;

}  // namespace

template <class T>
void choose_blocks(const NsaGeometry& geometry, std::int64_t t, const T* scores, Candidate<T>* heap,
                   std::int32_t* blocks) {
  const auto position = static_cast<std::int32_t>(t);
  const std::int32_t current = geometry.current_block(position);
  const std::int32_t taken = geometry.blocks_taken(position);
  const std::int32_t free_begin = std::min(geometry.initial, current + 1);
  const std::int32_t free_end = std::max(free_begin, current - geometry.local + 1);
  const std::int32_t forced = free_begin + (current + 1 - free_end);
  const std::int32_t wanted = taken - forced;
  std::int32_t* end = blocks;
  for (std::int32_t j = 0; j < free_begin; ++j) *end++ = j;
  for (std::int32_t j = free_end; j <= current; ++j) *end++ = j;
  if (wanted > 0) {
    // The front of the heap is the candidate to give up first.
    std::int32_t kept = 0;
    for (std::int32_t j = free_begin; j < free_end; ++j) {
      const Candidate<T> candidate{scores[j], j};
      if (kept == wanted) {
        if (!precedes(candidate, heap[0])) continue;
        std::pop_heap(heap, heap + kept, precedes<T>);
        --kept;
      }
      heap[kept++] = candidate;
      std::push_heap(heap, heap + kept, precedes<T>);
    }
    for (std::int32_t i = 0; i < kept; ++i) *end++ = heap[i].block;
    std::sort(blocks, end);
  }
  std::fill(end, blocks + geometry.top_n, -1);
}

template void choose_blocks(const NsaGeometry&, std::int64_t, const float*, Candidate<float>*,
                            std::int32_t*);
template void choose_blocks(const NsaGeometry&, std::int64_t, const double*, Candidate<double>*,
                            std::int32_t*);

void CpuOps::apply(const SelectBlocks& op) {
  const std::int64_t kv_heads = op.blocks.dim(1);
  const std::int64_t columns = op.importance.dim(2);
  const Documents& documents = op.documents;
  with_float(op.importance.dtype(), [&]<class T>() {
    const T* importance = op.importance.as<T>();
    auto* blocks = op.blocks.as<std::int32_t>();
    for (std::int64_t d = 0; d < documents.count(); ++d) {
      const std::int64_t length = documents.length(d);
      pool_.for_each((length + kPieceQueries - 1) / kPieceQueries,
                     [&](std::int64_t piece, int worker) {
                       Scratch::Frame frame(scratch(worker));
                       auto* heap = frame.take<Candidate<T>>(op.geometry.top_n);
                       const std::int64_t end = std::min(length, (piece + 1) * kPieceQueries);
                       for (std::int64_t t = piece * kPieceQueries; t < end; ++t) {
                         for (std::int64_t head = 0; head < kv_heads; ++head) {
                           const std::int64_t row = (documents.begin(d) + t) * kv_heads + head;
                           choose_blocks(op.geometry, t, importance + row * columns, heap,
                                         blocks + row * op.geometry.top_n);
                         }
                       }
                     });
    }
  });
}

}  // namespace nsa::cpu
