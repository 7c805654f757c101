#pragma once

// Lanes and packs of the kernels that split a projection row and join it again.

#include <cstdint>

#include "kernels/common/pack.cuh"
#include "kernels/common/reduce.cuh"
#include "kernels/split_layout.cuh"

namespace nsa::cuda {

/// What one lane does in one token.
template <class T>
struct SplitLane {
  const SplitPart<T>& part;
  std::int32_t lane;    ///< within its head
  std::int32_t slots;   ///< of the head; 0 where the lane has no head
  std::int64_t column;  ///< of the head in the projection
  std::int64_t offset;  ///< of the head in the part's tensors
  const float2* turns;  ///< of the token's position
};

/// The lane of `warp` out of all tokens' warps.
template <class T>
__device__ __forceinline__ SplitLane<T> split_lane(const SplitLayout<T>& layout,
                                                   std::uint32_t warp) {
  const auto warps = static_cast<std::uint32_t>(layout.warps);
  const std::int64_t token = warp / warps;
  const auto at = static_cast<std::int32_t>(warp % warps * kWarpSize + threadIdx.x % kWarpSize);
  std::int32_t i = 0;
  while (i + 1 < layout.count && at >= layout.parts[i + 1].first_lane) ++i;
  const SplitPart<T>& part = layout.parts[i];
  const std::int32_t head = (at - part.first_lane) >> part.lanes_log;
  const float2* turns = nullptr;
  if (layout.turns != nullptr) {
    const std::int64_t position = token - layout.documents.bounds[layout.documents.of_token[token]];
    turns = layout.turns + position * layout.half;
  }
  return {
      .part = part,
      .lane = (at - part.first_lane) & (part.lanes - 1),
      .slots = head < part.heads ? part.slots : 0,
      .column = token * layout.columns + part.column + static_cast<std::int64_t>(head) * part.dim,
      .offset = (token * part.heads + head) * part.dim,
      .turns = turns};
}

/// The packs of a slot: channels [low, low + W) and, where `paired`, [high, high + W).
struct Slot {
  std::int32_t low;
  std::int32_t high;
  bool paired;
};

template <int kWidth, class T>
__device__ __forceinline__ Slot slot_of(const SplitPart<T>& part, std::int32_t slot) {
  const bool paired = slot < part.turning;
  return {.low = (paired ? slot : slot + part.turning) * kWidth,
          .high = (slot + part.turning) * kWidth,
          .paired = paired};
}

/// Both packs of a slot, in fp32; `high` is zero where there is none.
template <int kWidth>
struct SlotValues {
  float low[kWidth];
  float high[kWidth];
};

template <int kWidth, class T>
__device__ __forceinline__ SlotValues<kWidth> load_slot(const T* head, const Slot& slot) {
  SlotValues<kWidth> values = {};
  load(head + slot.low, values.low);
  if (slot.paired) load(head + slot.high, values.high);
  return values;
}

template <int kWidth, class T>
__device__ __forceinline__ void store_slot(T* head, const Slot& slot,
                                           const SlotValues<kWidth>& values) {
  store(head + slot.low, values.low);
  if (slot.paired) store(head + slot.high, values.high);
}

/// Turns the packs of a paired slot: forwards with direction 1, back with -1.
template <int kWidth>
__device__ __forceinline__ void turn_slot(SlotValues<kWidth>& values, const float2* turns,
                                          const Slot& slot, float direction) {
  float turn[2 * kWidth];
  load(reinterpret_cast<const float*>(turns + slot.low), turn);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const float cosine = turn[2 * i];
    const float sine = turn[2 * i + 1] * direction;
    const float low = values.low[i];
    values.low[i] = low * cosine - values.high[i] * sine;
    values.high[i] = values.high[i] * cosine + low * sine;
  }
}

/// The sum over the lanes of a head, in each of them; the whole warp must call it.
__device__ __forceinline__ float head_sum(float value, std::int32_t lanes) {
  for (std::int32_t other = lanes / 2; other > 0; other /= 2) {
    value += __shfl_xor_sync(0xFFFFFFFFU, value, other);
  }
  return value;
}

}  // namespace nsa::cuda
