#pragma once

// Element types on the device: float and bf16 storage, float arithmetic.

#include <cstdint>
#include <cuda_bf16.h>

#include "core/dtype.h"
#include "core/error.h"
#include "core/tensor.h"

namespace nsa::cuda {

using bf16 = __nv_bfloat16;

__device__ __forceinline__ float to_float(float value) {
  return value;
}
__device__ __forceinline__ float to_float(bf16 value) {
  return __bfloat162float(value);
}

/// Rounded to nearest even.
template <class T>
__device__ __forceinline__ T from_float(float value);
template <>
__device__ __forceinline__ float from_float<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ bf16 from_float<bf16>(float value) {
  return __float2bfloat16_rn(value);
}

/// Sixteen bytes of elements: what one thread moves at once. Memory from Arena and Device is
/// aligned to it; a row is where its length is a multiple of kSize.
template <class T>
struct alignas(16) Vector {
  static constexpr int kSize = 16 / sizeof(T);
  T at[kSize];
};

/// The elements of a tensor as T, which must be what its dtype stores; null where it is undefined.
template <class T>
T* elements(const Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  constexpr DType kWanted = sizeof(T) == 2 ? DType::kBF16 : DType::kF32;
  nsa::check(tensor.dtype() == kWanted, "kernels: tensor of another element type");
  return static_cast<T*>(tensor.data());
}

/// Calls body.template operator()<T>() with float or bf16. fp64 stays on the CPU.
template <class Body>
decltype(auto) with_device_type(DType dtype, Body&& body) {
  if (dtype == DType::kF32) return body.template operator()<float>();
  if (dtype == DType::kBF16) return body.template operator()<bf16>();
  fail(std::string("the cuda backend computes in fp32 and bf16, not in ") + name_of(dtype));
}

}  // namespace nsa::cuda
