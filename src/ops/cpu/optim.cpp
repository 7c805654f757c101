#include "ops/optim.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "core/bf16.h"
#include "core/philox.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/tiles.h"
#include "ops/cpu/vector_math.h"

namespace nsa::cpu {
namespace {

constexpr std::int64_t kElementsPerPart = 32768;

/// Elements [begin, end) of the flat tensors.
struct Span {
  std::int64_t begin, end;
};

/// The numbers of one range that do not change from element to element.
template <class T>
struct Update {
  T grad_scale, beta1, beta2, m_scale, v_scale, eps, decay;
  T rest1, rest2;  ///< 1 - beta, made in double: 1 - 0.999 in float is wrong from the fifth digit
  T step;          ///< learning rate

  Update(const AdamW& op, const AdamWRange& range, double scale)
      : grad_scale(static_cast<T>(scale)),
        beta1(static_cast<T>(op.beta1)),
        beta2(static_cast<T>(op.beta2)),
        m_scale(static_cast<T>(1 / (1 - std::pow(op.beta1, static_cast<double>(range.updates))))),
        v_scale(static_cast<T>(1 / (1 - std::pow(op.beta2, static_cast<double>(range.updates))))),
        eps(static_cast<T>(op.eps)),
        decay(static_cast<T>(range.weight_decay)),
        rest1(static_cast<T>(1 - op.beta1)),
        rest2(static_cast<T>(1 - op.beta2)),
        step(static_cast<T>(op.learning_rate)) {}
};

// Sums of products are fused where kernels/optim.cu fuses them, so that both give the same bits.
template <class T>
void update_elements(const AdamW& op, const Update<T>& u, Span at, T* __restrict m,
                     T* __restrict v) {
  T* __restrict master = op.master.as<T>() + at.begin;
  const T* __restrict grad = op.grad.as<T>() + at.begin;
  for (std::int64_t i = 0; i < at.end - at.begin; ++i) {
    const T g = grad[i] * u.grad_scale;
    m[i] = std::fma(u.beta1, m[i], u.rest1 * g);
    v[i] = std::fma(u.beta2, v[i], u.rest2 * (g * g));
    const T direction = m[i] * u.m_scale / (std::sqrt(v[i] * u.v_scale) + u.eps);
    master[i] = std::fma(-u.step, std::fma(u.decay, master[i], direction), master[i]);
  }
}

/// Moments in bf16, a piece at a time in fp32.
void update_rounded(const AdamW& op, const Update<float>& u, Span at) {
  constexpr std::int64_t kPiece = 1024;
  std::array<float, kPiece> m{};
  std::array<float, kPiece> v{};
  auto* m_bits = static_cast<std::uint16_t*>(op.m.data());
  auto* v_bits = static_cast<std::uint16_t*>(op.v.data());
  for (std::int64_t begin = at.begin; begin < at.end; begin += kPiece) {
    const std::int64_t count = std::min(kPiece, at.end - begin);
    for (std::int64_t i = 0; i < count; ++i) {
      m[static_cast<std::size_t>(i)] = from_bf16(m_bits[begin + i]);
      v[static_cast<std::size_t>(i)] = from_bf16(v_bits[begin + i]);
    }
    update_elements<float>(op, u, {begin, begin + count}, m.data(), v.data());
    std::array<std::uint32_t, 4> random{};
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t element = begin + i;
      if (i == 0 || element % 4 == 0) {
        random = philox(op.rounding_key, 0, static_cast<std::uint64_t>(element / 4));
      }
      const std::uint32_t word = random[static_cast<std::size_t>(element % 4)];
      m_bits[element] = to_bf16_at_random(m[static_cast<std::size_t>(i)], word & 0xFFFFU);
      v_bits[element] = to_bf16_at_random(v[static_cast<std::size_t>(i)], word >> 16U);
    }
  }
}

template <class T>
void update_range(const AdamW& op, const Update<T>& u, Span at) {
  if (op.m.dtype() == DType::kBF16) {
    if constexpr (std::is_same_v<T, float>) update_rounded(op, u, at);
  } else {
    update_elements<T>(op, u, at, op.m.as<T>() + at.begin, op.v.as<T>() + at.begin);
  }
  const T* master = op.master.as<T>();
  T* weights = op.weights.as<T>();
  if (weights != master) std::copy(master + at.begin, master + at.end, weights + at.begin);
}

}  // namespace

void CpuOps::apply(const SumSquares& op) {
  const Parts parts = {.count = op.x.size(), .size = kElementsPerPart};
  Scratch::Frame frame(scratch(0));
  auto* partials = frame.take<double>(parts.parts());
  with_float(op.x.dtype(), [&]<class T>() {
    const T* x = op.x.as<T>();
    pool_.for_each(parts.parts(), [&](std::int64_t part, int) {
      const T* from = x + parts.begin(part);
      partials[part] = lane_sum<double>(parts.end(part) - parts.begin(part), [&](std::int64_t i) {
        const auto value = static_cast<double>(from[i]);
        return value * value;
      });
    });
  });
  double total = 0;
  for (std::int64_t part = 0; part < parts.parts(); ++part) total += partials[part];
  op.sum.as<double>()[0] += total;
}

void CpuOps::apply(const AdamW& op) {
  const double norm = op.grad_scale * std::sqrt(op.grad_square_sum.as<double>()[0]);
  if (!std::isfinite(norm)) return;
  const bool clip = op.max_norm > 0 && norm > op.max_norm;
  const double scale = clip ? op.grad_scale * (op.max_norm / norm) : op.grad_scale;
  with_float(op.master.dtype(), [&]<class T>() {
    const Parts parts = {.count = op.master.size(), .size = kElementsPerPart};
    for_each_part(pool_, parts, [&](std::int64_t begin, std::int64_t end) {
      for (const AdamWRange& range : op.ranges) {
        const std::int64_t from = std::max(begin, range.begin);
        const std::int64_t to = std::min(end, range.end);
        if (from < to) update_range<T>(op, Update<T>(op, range, scale), {from, to});
      }
    });
  });
}

}  // namespace nsa::cpu
