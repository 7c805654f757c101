#pragma once

// Matrix products through cuBLASLt.

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "core/buffer.h"
#include "core/device.h"
#include "core/tensor.h"

namespace nsa::cuda {

/// out [m, n] (+)= a * b, row-major; fp32 or bf16 operands, fp32 sums. The workspace is allocated
/// once. The algorithm of a shape is chosen at its first product, which waits for the GPU where the
/// product is large: the bits of the result are the same in every run (matmul_tuner.h).
class MatmulEngine {
 public:
  MatmulEngine(Device& device, cudaStream_t stream);
  ~MatmulEngine();
  MatmulEngine(const MatmulEngine&) = delete;
  MatmulEngine& operator=(const MatmulEngine&) = delete;

  /// Row-major operands: `a` is [m, k], or [k, m] when transposed; `b` is [k, n], or [n, k] when
  /// transposed. `out` [m, n] has the operands' type or fp32.
  struct Product {
    Tensor out;
    Tensor a;
    Tensor b;
    bool transpose_a = false;
    bool transpose_b = false;
    bool accumulate = false;  ///< out is added to
  };
  void run(const Product& product);

 private:
  /// What decides the algorithm: m, n, k, then transposes, types, accumulation and alignment.
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::uint32_t>;
  struct Plan;

  const Plan& plan_of(const Product& product);
  cublasStatus_t launch(const Plan& plan, const Product& product,
                        const cublasLtMatmulAlgo_t& algorithm);

  Device& device_;
  cudaStream_t stream_;
  cublasLtHandle_t handle_ = nullptr;
  Buffer workspace_;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

}  // namespace nsa::cuda
