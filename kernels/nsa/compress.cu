// Compression of keys and values: pooling and rotation around two matrix products.

#include <type_traits>

#include "kernels/common/check.h"
#include "kernels/cuda_ops.h"
#include "kernels/nsa/compress_phi.h"

namespace nsa::cuda {
namespace {

/// Rows of a matrix product are rounded up to this: the documents of each batch make another number
/// of compressed tokens, and the algorithm of a product is asked for by shape.
constexpr std::int64_t kRowsRounded = 512;

template <class T>
constexpr DType kType = sizeof(T) == 2 ? DType::kBF16 : DType::kF32;

template <class T>
Tensor matrix(T* data, std::int64_t rows, std::int64_t columns) {
  return {data, kType<T>, {rows, columns}};
}

/// Extents and memory of one evaluation of phi. Operands of matrix products have `padded` rows;
/// those past the last are zero.
template <class T>
struct PhiRows {
  PhiRows(const PhiWeights& weights, Phi which, const CompressShape& of, Scratch::Frame& from,
          cudaStream_t on)
      : phi(which), shape(of), frame(&from), stream(on) {
    rows = shape.rows();
    padded = (rows + kRowsRounded - 1) / kRowsRounded * kRowsRounded;
    hidden = weights.w1.defined() ? static_cast<std::int32_t>(weights.w1.dim(0)) : 0;
    input = phi == Phi::kMlpFlat ? shape.block * shape.dim : shape.dim;
    bins = weights.theta.defined() ? static_cast<std::int32_t>(weights.theta.dim(1)) : 0;
    if (phi == Phi::kMlpFlat) return;
    pool = frame->take<float>(static_cast<std::int64_t>(shape.heads) * shape.block);
    make_pool_weights(shape, elements<T>(weights.theta), bins, pool, stream);
  }

  /// Room for [padded, columns], zero past the last row.
  template <class U>
  U* take(std::int64_t columns) {
    U* data = frame->take<U>(padded * columns);
    check(cudaMemsetAsync(data + rows * columns, 0,
                          static_cast<std::size_t>((padded - rows) * columns) * sizeof(U), stream));
    return data;
  }
  /// In fp32 mode the wide rows are the operand, otherwise rounded ones.
  template <class U>
  T* take_narrow(U* wide_rows, std::int64_t columns) {
    if constexpr (std::is_same_v<T, float>) {
      return wide_rows;
    } else {
      return take<T>(columns);
    }
  }
  /// Where a kernel that writes wide rows puts the rounded ones: nowhere when they are the same.
  T* also(T* narrow) const { return std::is_same_v<T, float> ? nullptr : narrow; }

  /// The input rows of phi.
  void gather(const T* x, const T* position) {
    if (phi == Phi::kMlpFlat) {
      z = take<T>(input);
      flatten_blocks(shape, x, position, z, stream);
      return;
    }
    wide_z = take<float>(input);
    if (hidden > 0) z = take_narrow(wide_z, input);
    pool_blocks(shape, x, pool, wide_z, also(z), stream);
  }
  /// sums [padded, hidden] = z W1^T.
  void first_layer(MatmulEngine& matmul, const PhiWeights& weights) {
    sums = take<float>(hidden);
    matmul.run({.out = matrix(sums, padded, hidden),
                .a = matrix(z, padded, input),
                .b = weights.w1,
                .transpose_b = true});
  }

  Phi phi;
  CompressShape shape;
  Scratch::Frame* frame;
  cudaStream_t stream;
  std::int64_t rows = 0, padded = 0;
  std::int32_t hidden = 0, input = 0, bins = 0;
  float* pool = nullptr;    ///< [heads, block]; null for mlp_flat
  float* wide_z = nullptr;  ///< pooled rows in fp32; null for mlp_flat
  T* z = nullptr;           ///< rows as the operand of W1
  float* sums = nullptr;
};

template <class T>
void compress(const CompressForward& op, MatmulEngine& matmul, PhiRows<T>& phi) {
  const cudaStream_t stream = phi.stream;
  phi.gather(elements<T>(op.x), elements<T>(op.weights.position));
  TurnedRows<T> result;
  if (phi.phi == Phi::kMean || phi.phi == Phi::kPoolMlp) result.first = phi.wide_z;
  if (phi.hidden > 0) {
    phi.first_layer(matmul, op.weights);
    T* hidden = phi.template take<T>(phi.hidden);
    activate(phi.sums, elements<T>(op.weights.b1), hidden, phi.rows, phi.hidden, stream);
    float* y = phi.template take<float>(phi.shape.dim);
    matmul.run({.out = matrix(y, phi.padded, phi.shape.dim),
                .a = matrix(hidden, phi.padded, phi.hidden),
                .b = op.weights.w2,
                .transpose_b = true});
    result.second = y;
  }
  turn_rows(phi.shape, result, false, nullptr, elements<T>(op.out), stream);
}

/// dz of the two layers from dy, and their parameters' gradients. `wide_dy` holds dy and, where phi
/// keeps its input beside the layers (pool_mlp), becomes dz; otherwise `dz` is written.
template <class T, class Z>
void differentiate_layers(const CompressBackward& op, MatmulEngine& matmul, PhiRows<T>& phi, T* dy,
                          Z* dz) {
  phi.first_layer(matmul, op.weights);
  auto* dhidden = phi.template take<float>(phi.hidden);
  matmul.run({.out = matrix(dhidden, phi.padded, phi.hidden),
              .a = matrix(dy, phi.padded, phi.shape.dim),
              .b = op.weights.w2});
  HiddenGradient<T> gradient;
  gradient.sums = phi.sums;
  gradient.bias = elements<T>(op.weights.b1);
  gradient.dhidden = dhidden;
  gradient.hidden = phi.template take<T>(phi.hidden);
  gradient.dsums = phi.template take<T>(phi.hidden);
  gradient.slots = phi.frame->template take<float>(std::int64_t{kCompressSlots} * phi.hidden);
  differentiate_hidden(gradient, phi.rows, phi.hidden, phi.stream);
  add_slots(gradient.slots, phi.hidden, op.dweights.b1.as<float>(), phi.stream);
  matmul.run({.out = op.dweights.w2,
              .a = matrix(dy, phi.padded, phi.shape.dim),
              .b = matrix(gradient.hidden, phi.padded, phi.hidden),
              .transpose_a = true,
              .accumulate = true});
  matmul.run({.out = op.dweights.w1,
              .a = matrix(gradient.dsums, phi.padded, phi.hidden),
              .b = matrix(phi.z, phi.padded, phi.input),
              .transpose_a = true,
              .accumulate = true});
  matmul.run({.out = matrix(dz, phi.padded, phi.input),
              .a = matrix(gradient.dsums, phi.padded, phi.hidden),
              .b = op.weights.w1,
              .accumulate = phi.phi == Phi::kPoolMlp});
}

/// Through a phi that pools: dz in fp32.
template <class T>
void differentiate_pooled(const CompressBackward& op, MatmulEngine& matmul, PhiRows<T>& phi) {
  const T* x = elements<T>(op.x);
  const std::int32_t dim = phi.shape.dim;
  float* wide_dy = phi.template take<float>(dim);
  T* dy = phi.hidden > 0 ? phi.take_narrow(wide_dy, dim) : nullptr;
  float* dz = wide_dy;
  if constexpr (std::is_same_v<T, float>) {
    // dy stays an operand while dz is made.
    if (phi.hidden > 0) dz = phi.template take<float>(dim);
  }
  const TurnedRows<T> dout{.stored = elements<T>(op.dout)};
  turn_rows(phi.shape, dout, true, wide_dy, phi.also(dy), phi.stream);
  if (phi.hidden > 0) {
    if (dz != wide_dy) {
      check(cudaMemcpyAsync(dz, wide_dy, static_cast<std::size_t>(phi.padded * dim) * 4,
                            cudaMemcpyDeviceToDevice, phi.stream));
    }
    phi.gather(x, nullptr);
    differentiate_layers(op, matmul, phi, dy, dz);
  }
  if (op.dweights.theta.defined()) {
    auto* slots = phi.frame->template take<float>(std::int64_t{kCompressSlots} * phi.shape.heads *
                                                  phi.shape.block);
    sum_pool_gradient(phi.shape, x, dz, slots, phi.stream);
    add_theta_gradient(phi.shape, phi.pool, slots, phi.bins, op.dweights.theta.as<float>(),
                       phi.stream);
  }
  gather_tokens(phi.shape, phi.pool, dz, elements<T>(op.dx), phi.stream);
}

/// Through mlp_flat, whose rows are long: dz in T.
template <class T>
void differentiate_flat(const CompressBackward& op, MatmulEngine& matmul, PhiRows<T>& phi) {
  T* dy = phi.template take<T>(phi.shape.dim);
  const TurnedRows<T> dout{.stored = elements<T>(op.dout)};
  turn_rows(phi.shape, dout, true, nullptr, dy, phi.stream);
  phi.gather(elements<T>(op.x), elements<T>(op.weights.position));
  T* dz = phi.template take<T>(phi.input);
  differentiate_layers(op, matmul, phi, dy, dz);
  auto* slots = phi.frame->template take<float>(std::int64_t{kCompressSlots} * phi.input);
  sum_columns(dz, phi.rows, phi.input, slots, phi.stream);
  add_slots(slots, phi.input, op.dweights.position.as<float>(), phi.stream);
  const float* no_weights = nullptr;
  gather_tokens(phi.shape, no_weights, dz, elements<T>(op.dx), phi.stream);
}

}  // namespace

void CudaOps::apply(const CompressForward& op) {
  Scratch::Frame frame(scratch_);
  const CompressShape shape = compress_shape(op, documents_.view(op.documents, op.geometry));
  if (shape.rows() == 0) return;
  with_device_type(op.x.dtype(), [&]<class T>() {
    if (op.bypass) {
      const TurnedRows<T> x{.stored = elements<T>(op.x)};
      return turn_rows(shape, x, false, nullptr, elements<T>(op.out), stream_);
    }
    PhiRows<T> phi(op.weights, op.phi, shape, frame, stream_);
    compress(op, matmul_, phi);
  });
}

void CudaOps::apply(const CompressBackward& op) {
  Scratch::Frame frame(scratch_);
  const CompressShape shape = compress_shape(op, documents_.view(op.documents, op.geometry));
  with_device_type(op.x.dtype(), [&]<class T>() {
    if (shape.rows() == 0) {
      check(cudaMemsetAsync(op.dx.data(), 0, static_cast<std::size_t>(op.dx.bytes()), stream_));
      return;
    }
    if (op.bypass) {
      const TurnedRows<T> dout{.stored = elements<T>(op.dout)};
      return turn_rows(shape, dout, true, nullptr, elements<T>(op.dx), stream_);
    }
    PhiRows<T> phi(op.weights, op.phi, shape, frame, stream_);
    if (op.phi == Phi::kMlpFlat) {
      differentiate_flat(op, matmul_, phi);
    } else {
      differentiate_pooled(op, matmul_, phi);
    }
  });
}

}  // namespace nsa::cuda
