#include "ops/matmul.h"

#include <cstdlib>
#include <limits>
#include <mutex>
#include <string>

#include <cblas.h>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/tiles.h"

// How OpenBLAS chooses its kernels. Not in cblas.h; weak, because builds for one processor lack
// them. All three stand in one file of the library, which its own start pulls in: a weak reference
// alone would not (openblas_get_corename stands in another).
extern "C" {
[[gnu::weak]] char* gotoblas_corename();
[[gnu::weak]] void gotoblas_dynamic_init();
[[gnu::weak]] void gotoblas_dynamic_quit();
}

namespace nsa::cpu {
namespace {

/// OpenBLAS takes a processor younger than itself for a Prescott (2004) and then multiplies six
/// times slower than it can. Its choice is made again, by what the processor says of itself, unless
/// the user has chosen.
void use_fitting_kernels() {
#if defined(__x86_64__)
  constexpr const char* kChoice = "OPENBLAS_CORETYPE";
  if (gotoblas_corename == nullptr || gotoblas_dynamic_init == nullptr ||
      gotoblas_dynamic_quit == nullptr || std::getenv(kChoice) != nullptr ||
      std::string(gotoblas_corename()) != "Prescott") {
    return;
  }
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (!avx512 && !avx2) return;
  setenv(kChoice, avx512 ? "SkylakeX" : "Haswell", 0);
  gotoblas_dynamic_quit();
  gotoblas_dynamic_init();
  unsetenv(kChoice);
#endif
}

blasint blas_int(std::int64_t n) {
  check(n <= std::numeric_limits<blasint>::max(), "gemm: an extent exceeds what BLAS can count");
  return static_cast<blasint>(n);
}

CBLAS_TRANSPOSE transpose(bool yes) {
  return yes ? CblasTrans : CblasNoTrans;
}

}  // namespace

void use_one_blas_thread() {
  static std::once_flag once;
  std::call_once(once, use_fitting_kernels);
  openblas_set_num_threads(1);
}

void gemm(const Gemm<float>& g) {
  if (g.m == 0 || g.n == 0) return;
  cblas_sgemm(CblasRowMajor, transpose(g.transpose_a), transpose(g.transpose_b), blas_int(g.m),
              blas_int(g.n), blas_int(g.k), g.alpha, g.a, blas_int(g.lda), g.b, blas_int(g.ldb),
              g.beta, g.c, blas_int(g.ldc));
}

void gemm(const Gemm<double>& g) {
  if (g.m == 0 || g.n == 0) return;
  cblas_dgemm(CblasRowMajor, transpose(g.transpose_a), transpose(g.transpose_b), blas_int(g.m),
              blas_int(g.n), blas_int(g.k), g.alpha, g.a, blas_int(g.lda), g.b, blas_int(g.ldb),
              g.beta, g.c, blas_int(g.ldc));
}

void CpuOps::apply(const MatmulForward& op) {
  const std::int64_t k = op.x.dim(1);
  const std::int64_t n = op.out.dim(1);
  with_float(op.out.dtype(), [&]<class T>() {
    for_each_tile(pool_, matmul_tiles(op.out.dim(0), n), [&](const Tile& tile) {
      gemm(Gemm<T>{.transpose_b = true,
                   .m = tile.rows,
                   .n = tile.columns,
                   .k = k,
                   .a = op.x.as<T>() + tile.row * k,
                   .lda = k,
                   .b = op.weight.as<T>() + tile.column * k,
                   .ldb = k,
                   .c = op.out.as<T>() + tile.row * n + tile.column,
                   .ldc = n});
    });
  });
}

void CpuOps::apply(const MatmulBackwardInput& op) {
  const std::int64_t k = op.dx.dim(1);
  const std::int64_t n = op.dout.dim(1);
  with_float(op.dx.dtype(), [&]<class T>() {
    for_each_tile(pool_, matmul_tiles(op.dx.dim(0), k), [&](const Tile& tile) {
      gemm(Gemm<T>{.m = tile.rows,
                   .n = tile.columns,
                   .k = n,
                   .a = op.dout.as<T>() + tile.row * n,
                   .lda = n,
                   .b = op.weight.as<T>() + tile.column,
                   .ldb = k,
                   .c = op.dx.as<T>() + tile.row * k + tile.column,
                   .ldc = k});
    });
  });
}

void CpuOps::apply(const MatmulBackwardWeight& op) {
  const std::int64_t rows = op.dout.dim(0);
  const std::int64_t n = op.dweight.dim(0);
  const std::int64_t k = op.dweight.dim(1);
  with_float(op.dweight.dtype(), [&]<class T>() {
    for_each_tile(pool_, matmul_tiles(n, k), [&](const Tile& tile) {
      gemm(Gemm<T>{.transpose_a = true,
                   .m = tile.rows,
                   .n = tile.columns,
                   .k = rows,
                   .a = op.dout.as<T>() + tile.row,
                   .lda = n,
                   .b = op.x.as<T>() + tile.column,
                   .ldb = k,
                   .beta = 1,
                   .c = op.dweight.as<T>() + tile.row * k + tile.column,
                   .ldc = k});
    });
  });
}

}  // namespace nsa::cpu
