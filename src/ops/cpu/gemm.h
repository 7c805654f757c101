#pragma once

// The matrix product under every CPU op: one call, one thread (the pool runs calls side by side).

#include <cstdint>

namespace nsa::cpu {

/// Row-major c = alpha * op(a) * op(b) + beta * c, with op(a) [m, k], op(b) [k, n], c [m, n];
/// ld* are row strides of the matrices as stored. beta = 0 does not read c. The result of a row of
/// c depends on that row of op(a) and on the shapes alone. T is float or double.
template <class T>
struct Gemm {
  bool transpose_a = false;
  bool transpose_b = false;
  std::int64_t m = 0, n = 0, k = 0;
  T alpha = 1;
  const T* a = nullptr;
  std::int64_t lda = 0;
  const T* b = nullptr;
  std::int64_t ldb = 0;
  T beta = 0;
  T* c = nullptr;
  std::int64_t ldc = 0;
};

void gemm(const Gemm<float>& g);
void gemm(const Gemm<double>& g);

/// The library must not start threads of its own: CpuOps calls this once.
void use_one_blas_thread();

}  // namespace nsa::cpu
