#pragma once

// Element types of tensors, and the one dispatcher from a run-time type to a C++ type.

#include <cstdint>

#include "core/error.h"

namespace nsa {

/// kF64 exists for gradient checks and golden files: the same ops, without rounding to hide behind.
enum class DType : std::uint8_t { kF32, kF64, kI32 };

constexpr std::int64_t size_of(DType dtype) {
  return dtype == DType::kF64 ? 8 : 4;
}

constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "fp32";
    case DType::kF64:
      return "fp64";
    case DType::kI32:
      return "int32";
  }
  return "?";
}

/// The type of softmax statistics (lse, rstd, deltas, per-token losses) beside data of `dtype`.
constexpr DType stat_dtype(DType dtype) {
  return dtype == DType::kF64 ? DType::kF64 : DType::kF32;
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

/// Calls body.template operator()<T>() with the floating C++ type that `dtype` names.
template <class Body>
decltype(auto) with_float(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::kF32:
      return body.template operator()<float>();
    case DType::kF64:
      return body.template operator()<double>();
    case DType::kI32:
      break;
  }
  fail("not a floating type");
}

}  // namespace nsa
