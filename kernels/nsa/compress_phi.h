#pragma once

// The pieces of the compressor phi (ops/nsa_compress.h) that are not matrix products. A row is a
// (compressed token, KV head) pair; T: float or bf16.

#include <cstdint>

#include <cuda_runtime_api.h>

#include "kernels/common/documents.h"
#include "kernels/common/types.cuh"
#include "ops/nsa_compress.h"

namespace nsa::cuda {

/// Extents of one compression.
struct CompressShape {
  std::int32_t heads = 0, dim = 0;
  std::int32_t block = 0, stride = 0;
  std::int32_t rotary_half = 0;      ///< 0: not rotated
  std::int32_t position_offset = 0;  ///< of a block's position from its first token
  double rope_base = 0;
  NsaGeometry geometry;
  DocumentView documents{};

  __host__ __device__ std::int64_t rows() const {
    return static_cast<std::int64_t>(documents.compressed_rows) * heads;
  }
  /// First token of a compressed token.
  __device__ std::int32_t first_token(std::int32_t compressed) const {
    const std::int32_t document = documents.of_compressed[compressed];
    return documents.bounds[document] +
           (compressed - documents.compressed_begin[document]) * stride;
  }
};

template <class Op>
CompressShape compress_shape(const Op& op, const DocumentView& documents) {
  CompressShape shape;
  shape.heads = static_cast<std::int32_t>(op.x.dim(1));
  shape.dim = static_cast<std::int32_t>(op.x.dim(2));
  shape.block = op.geometry.compress_block();
  shape.stride = op.geometry.compress_stride();
  shape.rotary_half = static_cast<std::int32_t>(op.rope.rotary_dim / 2);
  shape.position_offset =
      static_cast<std::int32_t>(compress_position_offset(op.position, shape.block));
  shape.rope_base = op.rope.base;
  shape.geometry = op.geometry;
  shape.documents = documents;
  return shape;
}

/// weights [heads, block]: softmax of theta [heads, bins] resampled to the block, in fp64; 1 /
/// block where theta is null.
template <class T>
void make_pool_weights(const CompressShape& shape, const T* theta, std::int32_t bins,
                       float* weights, cudaStream_t stream);

/// The pooled blocks of x: in fp32, and rounded to T where `narrow` is not null.
template <class T>
void pool_blocks(const CompressShape& shape, const T* x, const float* weights, float* wide,
                 T* narrow, cudaStream_t stream);

/// The tokens of each block side by side, position [block, dim] added: z [rows, block * dim].
template <class T>
void flatten_blocks(const CompressShape& shape, const T* x, const T* position, T* z,
                    cudaStream_t stream);

/// hidden = silu(sums + bias), [rows, width].
template <class T>
void activate(const float* sums, const T* bias, T* hidden, std::int64_t rows, std::int32_t width,
              cudaStream_t stream);

/// What is turned: the sum of those that are not null, each [rows, dim].
template <class T>
struct TurnedRows {
  const float* first = nullptr;
  const float* second = nullptr;
  const T* stored = nullptr;
};
/// Rows turned by RoPE to the positions of their blocks, or back; in fp32, rounded to T, or both.
template <class T>
void turn_rows(const CompressShape& shape, const TurnedRows<T>& from, bool inverse, float* wide,
               T* narrow, cudaStream_t stream);

// Backward.

/// dx of every token from the blocks that hold it: pooled blocks give weights times dz [rows, dim];
/// with weights null dz is [rows, block * dim].
template <class T, class Z>
void gather_tokens(const CompressShape& shape, const float* weights, const Z* dz, T* dx,
                   cudaStream_t stream);

/// Partial sums stand in so many slots, which are added in order.
constexpr std::int32_t kCompressSlots = 128;

/// From the sums before the activation and dhidden: hidden again and dsums, both [rows, width], and
/// slots [kCompressSlots, width] of the columns of dsums.
template <class T>
struct HiddenGradient {
  const float* sums = nullptr;
  const T* bias = nullptr;
  const float* dhidden = nullptr;
  T* hidden = nullptr;
  T* dsums = nullptr;
  float* slots = nullptr;
};
template <class T>
void differentiate_hidden(const HiddenGradient<T>& gradient, std::int64_t rows, std::int32_t width,
                          cudaStream_t stream);

/// slots [kCompressSlots, width]: sums over the rows of x [rows, width].
template <class T>
void sum_columns(const T* x, std::int64_t rows, std::int32_t width, float* slots,
                 cudaStream_t stream);

/// total [width] += the sum of slots.
void add_slots(const float* slots, std::int32_t width, float* total, cudaStream_t stream);

/// slots [kCompressSlots, heads, block]: sums over the blocks of <dz of the block, token j>.
template <class T>
void sum_pool_gradient(const CompressShape& shape, const T* x, const float* dz, float* slots,
                       cudaStream_t stream);

/// dtheta [heads, bins] += the gradient of the logits behind the pooling weights.
void add_theta_gradient(const CompressShape& shape, const float* weights, const float* slots,
                        std::int32_t bins, float* dtheta, cudaStream_t stream);

}  // namespace nsa::cuda
