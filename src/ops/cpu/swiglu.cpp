#include "ops/swiglu.h"

#include <algorithm>
#include <array>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/tiles.h"
#include "ops/cpu/vector_math.h"

namespace nsa::cpu {
namespace {

/// Results are made in blocks beside the data and then copied: loops that may write over what they
/// read do not vectorise, and backward may be told to work in place.
constexpr std::int64_t kBlock = 128;
template <class T>
using Block = std::array<T, static_cast<std::size_t>(kBlock)>;

template <class T>
void backward_block(const T* gate, const T* up, const T* dy, std::int64_t count, T* dgate, T* dup) {
  Block<T> slope;
  Block<T> swish;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const T s = sigmoid(gate[i]);
    swish[at] = gate[i] * s;
    slope[at] = s * (T(1) + gate[i] * (T(1) - s)) * up[i];
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    dgate[i] = dy[i] * slope[at];
    dup[i] = dy[i] * swish[at];
  }
}

}  // namespace

void CpuOps::apply(const SwiGluForward& op) {
  const std::int64_t ffn = op.y.dim(1);
  with_float(op.y.dtype(), [&]<class T>() {
    for_each_part(pool_, row_parts(op.y.dim(0), ffn), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const T* gate = op.gate_up.as<T>() + row * 2 * ffn;
        const T* up = gate + ffn;
        T* y = op.y.as<T>() + row * ffn;
        for (std::int64_t c = 0; c < ffn; ++c) y[c] = gate[c] * sigmoid(gate[c]) * up[c];
      }
    });
  });
}

void CpuOps::apply(const SwiGluBackward& op) {
  const std::int64_t ffn = op.dy.dim(1);
  with_float(op.dy.dtype(), [&]<class T>() {
    for_each_part(pool_, row_parts(op.dy.dim(0), ffn), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const T* gate = op.gate_up.as<T>() + row * 2 * ffn;
        const T* dy = op.dy.as<T>() + row * ffn;
        T* dgate = op.dgate_up.as<T>() + row * 2 * ffn;
        for (std::int64_t c = 0; c < ffn; c += kBlock) {
          backward_block(gate + c, gate + ffn + c, dy + c, std::min(kBlock, ffn - c), dgate + c,
                         dgate + ffn + c);
        }
      }
    });
  });
}

}  // namespace nsa::cpu
