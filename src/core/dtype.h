#pragma once

// Element types of tensors, and the one dispatcher from a run-time type to a C++ type.

#include <cstdint>
#include <string>

#include "core/error.h"

namespace nsa {

/// kF64 exists for gradient checks and golden files: the same ops, without rounding to hide behind.
/// kBF16 is what a GPU computes with; the CPU backend does not.
enum class DType : std::uint8_t { kF32, kF64, kI32, kBF16 };

constexpr std::int64_t size_of(DType dtype) {
  return dtype == DType::kF64 ? 8 : dtype == DType::kBF16 ? 2 : 4;
}

constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "fp32";
    case DType::kF64:
      return "fp64";
    case DType::kI32:
      return "int32";
    case DType::kBF16:
      return "bf16";
  }
  return "?";
}

/// The type of softmax statistics (lse, rstd, deltas, per-token losses) beside data of `dtype`.
constexpr DType stat_dtype(DType dtype) {
  return dtype == DType::kF64 ? DType::kF64 : DType::kF32;
}

/// The type of the gradients of weights of `dtype`, and of master weights and moments beside them:
/// sums over many rows and steps need more digits than bf16 has.
constexpr DType grad_dtype(DType dtype) {
  return dtype == DType::kBF16 ? DType::kF32 : dtype;
}

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType kValue = DType::kF32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType kValue = DType::kF64;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType kValue = DType::kI32;
};

/// Calls body.template operator()<T>() with the floating C++ type of the host that `dtype` names.
template <class Body>
decltype(auto) with_float(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::kF32:
      return body.template operator()<float>();
    case DType::kF64:
      return body.template operator()<double>();
    case DType::kI32:
    case DType::kBF16:
      break;
  }
  fail(std::string("no floating type of the host: ") + name_of(dtype));
}

}  // namespace nsa
