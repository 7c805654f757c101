#pragma once

// Range attention as its kernels see it: pointers, extents, who sees whom.

#include <cstdint>

#include "kernels/attention/range_attention.h"
#include "kernels/common/types.cuh"

namespace nsa::cuda {

/// Keys of a query and queries of a key, in global rows. Both ends of either grow (or stay) from
/// one row to the next, across documents too, so what a tile of rows sees lies between the begin
/// of its first row and the end of its last.
struct RangeRule {
  KeyRange range = KeyRange::kCausal;
  NsaGeometry geometry;
  DocumentView documents{};

  /// [x, y): the key rows that a token sees; x == y where it sees none.
  __device__ int2 keys_of(std::int32_t token) const {
    const std::int32_t document = documents.of_token[token];
    const std::int32_t first = documents.bounds[document];
    if (range == KeyRange::kCausal) return make_int2(first, token + 1);
    if (range == KeyRange::kWindow) {
      return make_int2(first + geometry.window_begin(token - first), token + 1);
    }
    const std::int32_t begin = documents.compressed_begin[document];
    return make_int2(begin, begin + geometry.visible_blocks(token - first));
  }
  /// [x, y): the tokens that see a key row; never empty.
  __device__ int2 tokens_of(std::int32_t key) const {
    if (range == KeyRange::kCompressed) {
      const std::int32_t document = documents.of_compressed[key];
      const std::int32_t local = key - documents.compressed_begin[document];
      return make_int2(documents.bounds[document] + geometry.compressed_begin(local) +
                           geometry.compress_block() - 1,
                       documents.bounds[document + 1]);
    }
    const std::int32_t end = documents.bounds[documents.of_token[key] + 1];
    return make_int2(key, range == KeyRange::kCausal ? end : min(end - key, geometry.window) + key);
  }
};

/// T: float or bf16. Layouts as in range_attention.h.
template <class T>
struct RangeProblem {
  const T* q = nullptr;
  const T* k = nullptr;
  const T* v = nullptr;
  T* out = nullptr;      ///< forward; null: lse alone
  float* lse = nullptr;  ///< written forward, read backward
  const T* dout = nullptr;
  T* dq = nullptr;
  T* dk = nullptr;
  T* dv = nullptr;
  const float* gates = nullptr;
  const float* deltas = nullptr;
  std::int32_t stat_stride = 1;
  bool accumulate_dq = false;
  std::int32_t heads = 0, kv_heads = 0, group = 0, head_dim = 0, v_dim = 0;
  std::int32_t tokens = 0, keys = 0;
  float scale = 0;
  bool general = false;  ///< no fast path
  RangeRule rule;

  /// Rows of one KV head: (token, head of the group), the head fastest.
  __host__ __device__ std::int32_t rows() const { return tokens * group; }
};

/// Where the rows from `first` on of one KV head stand in arrays [tokens, heads]. Offsets of up to
/// kMostOffset rows; groups of up to kMostGroup.
class RowMap {
 public:
  static constexpr std::int32_t kMostOffset = 256;
  static constexpr std::int32_t kMostGroup = 512;

  template <class T>
  __device__ RowMap(const RangeProblem<T>& p, std::int32_t first, std::int32_t kv_head)
      : token_(first / p.group),
        head_(first - token_ * p.group),
        group_(p.group),
        skip_(p.heads - p.group),
        // x / group as a product: exact while x * (group - 1) < 2^20.
        reciprocal_(((1U << kShift) + static_cast<std::uint32_t>(p.group) - 1) /
                    static_cast<std::uint32_t>(p.group)),
        base_(static_cast<std::int64_t>(token_) * p.heads + kv_head * p.group + head_) {}

  /// To the map from a later row on.
  __device__ void advance(std::int32_t offset) {
    const std::int32_t tokens = steps(offset);
    token_ += tokens;
    base_ += static_cast<std::int64_t>(tokens) * skip_ + offset;
    head_ += offset - tokens * group_;
  }

  __device__ std::int32_t token(std::int32_t offset) const { return token_ + steps(offset); }
  /// Index of the row in [tokens, heads].
  __device__ std::int64_t index(std::int32_t offset) const {
    return base_ + static_cast<std::int64_t>(steps(offset)) * skip_ + offset;
  }
  /// The same for many rows at little cost: index(offset) = base() + steps(offset) * skip() +
  /// offset.
  __device__ std::int64_t base() const { return base_; }
  __device__ std::int32_t skip() const { return skip_; }
  __device__ std::int32_t steps(std::int32_t offset) const {
    return static_cast<std::int32_t>((static_cast<std::uint32_t>(head_ + offset) * reciprocal_) >>
                                     kShift);
  }

 private:
  static constexpr int kShift = 20;
  static_assert((kMostOffset + kMostGroup) * (kMostGroup - 1) < 1 << kShift);

  std::int32_t token_, head_, group_, skip_;
  std::uint32_t reciprocal_;
  std::int64_t base_;
};

// The launches, each in the file of its kernel.

void range_forward_plain(const RangeProblem<float>& problem, cudaStream_t stream);
void range_backward_plain(const RangeProblem<float>& problem, cudaStream_t stream);
void range_forward_tensor(const RangeProblem<bf16>& problem, cudaStream_t stream);
void range_backward_queries_tensor(const RangeProblem<bf16>& problem, cudaStream_t stream);

/// How the work of dk and dv is cut, and where its partial sums go.
struct RangeSplit {
  std::int64_t longest = 0;
  int multiprocessors = 0;
  Scratch::Frame* frame = nullptr;
};
void range_backward_keys_tensor(const RangeProblem<bf16>& problem, const RangeSplit& split,
                                cudaStream_t stream);

// The same by warpgroups. False, and nothing done, where these do not take the problem or the GPU
// is not one of sm_90a.
bool range_forward_group(const RangeProblem<bf16>& problem, cudaStream_t stream);
bool range_backward_queries_group(const RangeProblem<bf16>& problem, cudaStream_t stream);
bool range_backward_keys_group(const RangeProblem<bf16>& problem, const RangeSplit& split,
                               cudaStream_t stream);

/// Calls body.template operator()<kHeadDim, kValueDim>() with the least padded head dims of the
/// tensor-core kernels that hold these.
template <class Body>
void with_range_dims(std::int32_t head_dim, std::int32_t v_dim, Body&& body) {
  if (head_dim <= 64 && v_dim <= 64) return body.template operator()<64, 64>();
  if (head_dim <= 128 && v_dim <= 128) return body.template operator()<128, 128>();
  if (head_dim <= 192 && v_dim <= 128) return body.template operator()<192, 128>();
  return body.template operator()<256, 256>();
}

}  // namespace nsa::cuda
