// The gradients of keys and values of selected attention: which kernel makes them, and how the sums
// of several parts of a list become one.

#include <algorithm>

#include "kernels/common/check.h"
#include "kernels/common/tensor_core.cuh"
#include "kernels/nsa/selected_dkdv.h"
#include "kernels/nsa/selected_kernels.h"

namespace nsa::cuda {
namespace {

constexpr int kReduceThreads = 256;
/// Parts of all queries for each multiprocessor: enough that the last ones to finish do not keep
/// the others waiting, few enough that the slots of long lists stay small.
constexpr std::int64_t kPartsOfMultiprocessor = 8;
constexpr std::int64_t kLeastPart = 64;
constexpr std::int64_t kMostPart = 1024;
/// q and dout of a span of queries of one KV head, which blocks read side by side: what the L2
/// cache still serves most of.
constexpr std::int64_t kSpanBytes = std::int64_t{64} << 20;
/// Nearly every list has a slot in each span after its block: more spans would take memory that
/// grows with the square of the context.
constexpr std::int64_t kMostSpans = 16;

/// One block: kTileKeys keys of one list of several parts. Reads the list's slots, writes dk and
/// dv: sums over the parts in order.
__global__ void __launch_bounds__(kReduceThreads)
    selected_slots_kernel(const SelectedProblem<bf16> p, const BlockLists lists,
                          const float* partials, std::int32_t key_tiles) {
  const std::int64_t list = blockIdx.x / static_cast<unsigned>(key_tiles);
  const auto key_tile = static_cast<std::int32_t>(blockIdx.x % static_cast<unsigned>(key_tiles));
  const std::int32_t first_slot = lists.first_slot[list];
  const std::int32_t parts = lists.first_slot[list + 1] - first_slot;
  if (parts == 0) return;
  const std::int64_t id = list % lists.ids;
  const auto kv_head = static_cast<std::int32_t>(list / lists.ids);
  const std::int32_t key = lists.block_begin[id] + key_tile * kTileKeys;
  const std::int32_t keys = min(lists.block_end[id] - key, kTileKeys);
  const std::int32_t width = p.head_dim + p.v_dim;
  const std::int64_t stride = static_cast<std::int64_t>(key_tiles) * kTileKeys * width;
  const float* first =
      partials + (static_cast<std::int64_t>(first_slot) * key_tiles + key_tile) * kTileKeys * width;
  for (std::int32_t at = static_cast<std::int32_t>(threadIdx.x) * 4; at < keys * width;
       at += kReduceThreads * 4) {
    float4 sum = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
#pragma unroll 4
    for (std::int32_t part = 0; part < parts; ++part) {
      const float4 value = *reinterpret_cast<const float4*>(first + part * stride + at);
      sum.x += value.x;
      sum.y += value.y;
      sum.z += value.z;
      sum.w += value.w;
    }
    const std::int32_t column = at % width;
    const std::int64_t row = p.pair(key + at / width, kv_head);
    bf16* to = column < p.head_dim ? p.dk + row * p.head_dim + column
                                   : p.dv + row * p.v_dim + column - p.head_dim;
    *reinterpret_cast<uint2*>(to) = make_uint2(pack(sum.x, sum.y), pack(sum.z, sum.w));
  }
}

ListCut cut_of(const SelectedProblem<bf16>& problem, int multiprocessors) {
  const std::int64_t entries =
      static_cast<std::int64_t>(problem.tokens()) * problem.kv_heads * problem.top_n;
  const std::int64_t row_bytes =
      static_cast<std::int64_t>(problem.group) * (problem.head_dim + problem.v_dim) * 2;
  ListCut cut;
  cut.part =
      std::clamp(entries / (kPartsOfMultiprocessor * multiprocessors), kLeastPart, kMostPart);
  cut.span = std::max(kSpanBytes / row_bytes, (problem.tokens() + kMostSpans - 1) / kMostSpans);
  return cut;
}

}  // namespace

void selected_dkdv(const SelectedProblem<bf16>& problem, int multiprocessors, Scratch::Frame& frame,
                   cudaStream_t stream) {
  if (problem.tokens() == 0) return;
  const BlockLists lists =
      list_queries(selection_of(problem), cut_of(problem, multiprocessors), frame, stream);
  const std::int32_t key_tiles = key_tiles_of(problem);
  auto* partials = frame.take<float>(lists.most_slots * key_tiles * kTileKeys *
                                     (problem.head_dim + problem.v_dim));
  if (!problem.general && fits_dkdv_group(problem)) {
    selected_dkdv_group(problem, lists, partials, multiprocessors, frame, stream);
  } else {
    selected_dkdv_tensor(problem, lists, partials, stream);
  }
  if (lists.most_slots == 0) return;
  selected_slots_kernel<<<static_cast<unsigned>(lists.lists * key_tiles), kReduceThreads, 0,
                          stream>>>(problem, lists, partials, key_tiles);
  check_launch("selected_slots_kernel");
}

}  // namespace nsa::cuda
