#include "ops/norm.h"

#include <cmath>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/tiles.h"
#include "ops/cpu/vector_math.h"

namespace nsa::cpu {
namespace {

/// Rows whose share of dweight is summed in one go.
constexpr std::int64_t kRowsPerPartial = 64;

/// The sum in double: a float sum over a wide row would miss 1e-6.
template <class T>
T reciprocal_rms(const T* x, std::int64_t dim, double eps) {
  const double squares = lane_sum<double>(dim, [x](std::int64_t c) {
    const auto value = static_cast<double>(x[c]);
    return value * value;
  });
  return static_cast<T>(1.0 / std::sqrt(squares / static_cast<double>(dim) + eps));
}

template <class T>
void norm_row_backward(const ResidualNormBackward& op, std::int64_t row, T* dweight) {
  const std::int64_t dim = op.residual.dim(1);
  const T* dy = op.dy.as<T>() + row * dim;
  const T* x = op.residual.as<T>() + row * dim;
  const T* weight = op.weight.as<T>();
  T* dx = op.dresidual.as<T>() + row * dim;
  const T rstd = op.rstd.as<T>()[row];
  const double mean =
      lane_sum<double>(
          dim, [&](std::int64_t c) { return static_cast<double>(dy[c] * weight[c] * x[c]); }) /
      static_cast<double>(dim);
  const T along = static_cast<T>(mean * static_cast<double>(rstd) * static_cast<double>(rstd));
  for (std::int64_t c = 0; c < dim; ++c) dweight[c] += dy[c] * x[c] * rstd;
  if (op.accumulate) {
    for (std::int64_t c = 0; c < dim; ++c) dx[c] += rstd * (dy[c] * weight[c] - x[c] * along);
  } else {
    for (std::int64_t c = 0; c < dim; ++c) dx[c] = rstd * (dy[c] * weight[c] - x[c] * along);
  }
}

}  // namespace

void CpuOps::apply(const ResidualNormForward& op) {
  const std::int64_t dim = op.y.dim(1);
  with_float(op.y.dtype(), [&]<class T>() {
    const T* weight = op.weight.as<T>();
    for_each_part(pool_, row_parts(op.y.dim(0), dim), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const T* x = op.residual.as<T>() + row * dim;
        if (op.delta.defined()) {
          const T* delta = op.delta.as<T>() + row * dim;
          T* sum = op.residual_out.as<T>() + row * dim;
          for (std::int64_t c = 0; c < dim; ++c) sum[c] = x[c] + delta[c];
          x = sum;
        }
        const T rstd = reciprocal_rms(x, dim, op.eps);
        op.rstd.as<T>()[row] = rstd;
        T* y = op.y.as<T>() + row * dim;
        for (std::int64_t c = 0; c < dim; ++c) y[c] = x[c] * rstd * weight[c];
      }
    });
  });
}

void CpuOps::apply(const ResidualNormBackward& op) {
  const std::int64_t dim = op.residual.dim(1);
  const Parts parts = {.count = op.residual.dim(0), .size = kRowsPerPartial};
  with_float(op.residual.dtype(), [&]<class T>() {
    Scratch::Frame frame(scratch(0));
    T* partials = frame.take<T>(parts.parts() * dim);
    pool_.for_each(parts.parts(), [&](std::int64_t part, int) {
      T* dweight = partials + part * dim;
      std::fill_n(dweight, dim, T(0));
      for (std::int64_t row = parts.begin(part); row < parts.end(part); ++row) {
        norm_row_backward<T>(op, row, dweight);
      }
    });
    add_partials(pool_, partials, parts.parts(), dim, op.dweight.as<T>());
  });
}

}  // namespace nsa::cpu
