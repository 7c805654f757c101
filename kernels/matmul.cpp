#include "kernels/matmul.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/common/check.h"
#include "kernels/cuda_ops.h"
#include "kernels/matmul_tuner.h"

namespace nsa::cuda {
namespace {

/// What NVIDIA recommends for Hopper.
constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
/// Products of so many operations (some ten microseconds) are worth a search among so many
/// algorithms: cuBLASLt's first choice is up to a quarter slower than its best.
constexpr std::int64_t kTunedFlops = 10'000'000'000;
constexpr int kCandidates = 8;

cudaDataType_t data_type(DType dtype) {
  if (dtype == DType::kF32) return CUDA_R_32F;
  if (dtype == DType::kBF16) return CUDA_R_16BF;
  fail(std::string("the cuda backend multiplies fp32 and bf16 matrices, not ") + name_of(dtype));
}

/// The largest power of two up to 256 that the address is a multiple of.
std::uint32_t alignment_of(const Tensor& tensor) {
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data());
  std::uint32_t alignment = 256;
  while (address % alignment != 0) alignment /= 2;
  return alignment;
}

}  // namespace

/// cuBLASLt counts columns first: a row-major product out = a b is the column-major out' = b' a',
/// so its first operand is ours second.
struct MatmulEngine::Plan {
  Plan() = default;
  ~Plan() {
    for (cublasLtMatrixLayout_t layout : {first, second, out}) {
      if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
    }
    if (operation != nullptr) cublasLtMatmulDescDestroy(operation);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t first = nullptr;
  cublasLtMatrixLayout_t second = nullptr;
  cublasLtMatrixLayout_t out = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
};

MatmulEngine::MatmulEngine(Device& device, cudaStream_t stream)
    : device_(device),
      stream_(stream),
      workspace_(device, static_cast<std::int64_t>(kWorkspaceBytes)) {
  check(cublasLtCreate(&handle_));
}

MatmulEngine::~MatmulEngine() {
  plans_.clear();  // before the library that made them
  cublasLtDestroy(handle_);
}

cublasStatus_t MatmulEngine::launch(const Plan& plan, const Product& product,
                                    const cublasLtMatmulAlgo_t& algorithm) {
  const float alpha = 1.0F;
  const float beta = product.accumulate ? 1.0F : 0.0F;
  return cublasLtMatmul(handle_, plan.operation, &alpha, product.b.data(), plan.first,
                        product.a.data(), plan.second, &beta, product.out.data(), plan.out,
                        product.out.data(), plan.out, &algorithm, workspace_.data(),
                        kWorkspaceBytes, stream_);
}

const MatmulEngine::Plan& MatmulEngine::plan_of(const Product& product) {
  const std::int64_t m = product.out.dim(0);
  const std::int64_t n = product.out.dim(1);
  const std::int64_t k = product.transpose_a ? product.a.dim(0) : product.a.dim(1);
  const cudaDataType_t in_type = data_type(product.a.dtype());
  const cudaDataType_t out_type = data_type(product.out.dtype());
  const std::uint32_t alignment =
      std::min({alignment_of(product.a), alignment_of(product.b), alignment_of(product.out)});
  const std::uint32_t flags = (product.transpose_a ? 1U : 0U) + (product.transpose_b ? 2U : 0U) +
                              (product.accumulate ? 4U : 0U) + (in_type == CUDA_R_16BF ? 8U : 0U) +
                              (out_type == CUDA_R_16BF ? 16U : 0U) + (alignment << 8U);
  std::unique_ptr<Plan>& kept = plans_[{m, n, k, flags}];
  if (kept != nullptr) return *kept;

  auto plan = std::make_unique<Plan>();
  check(cublasLtMatmulDescCreate(&plan->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const cublasOperation_t on_first = product.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t on_second = product.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  check(cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_TRANSA, &on_first,
                                       sizeof(on_first)));
  check(cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_TRANSB, &on_second,
                                       sizeof(on_second)));
  const auto layout = [](cublasLtMatrixLayout_t* made, cudaDataType_t type, const Tensor& matrix) {
    // A row-major [rows, columns] matrix is a column-major [columns, rows] one.
    check(cublasLtMatrixLayoutCreate(made, type, static_cast<std::uint64_t>(matrix.dim(1)),
                                     static_cast<std::uint64_t>(matrix.dim(0)), matrix.dim(1)));
  };
  layout(&plan->first, in_type, product.b);
  layout(&plan->second, in_type, product.a);
  layout(&plan->out, out_type, product.out);

  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference));
  check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &kWorkspaceBytes, sizeof(kWorkspaceBytes)));
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    check(
        cublasLtMatmulPreferenceSetAttribute(preference, attribute, &alignment, sizeof(alignment)));
  }
  std::array<cublasLtMatmulHeuristicResult_t, kCandidates> results{};
  int found = 0;
  const bool large = 2 * m * n * k >= kTunedFlops;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_, plan->operation, plan->first, plan->second, plan->out, plan->out, preference,
      large ? kCandidates : 1, results.data(), &found);
  cublasLtMatmulPreferenceDestroy(preference);
  check(status);
  nsa::check(found > 0, "cuBLASLt has no algorithm for a matrix product");
  plan->algorithm = results.front().algo;
  if (found > 1) {
    std::vector<cublasLtMatmulAlgo_t> candidates;
    for (int i = 0; i < found; ++i) candidates.push_back(results[static_cast<std::size_t>(i)].algo);
    plan->algorithm = fastest_of(
        candidates, product.out, product.accumulate,
        [&](const cublasLtMatmulAlgo_t& algorithm) {
          return launch(*plan, product, algorithm) == CUBLAS_STATUS_SUCCESS;
        },
        device_, stream_);
  }
  kept = std::move(plan);
  return *kept;
}

void MatmulEngine::run(const Product& product) {
  if (product.out.size() == 0) return;
  const Plan& plan = plan_of(product);
  check(launch(plan, product, plan.algorithm));
}

void CudaOps::apply(const MatmulForward& op) {
  matmul_.run({.out = op.out, .a = op.x, .b = op.weight, .transpose_b = true});
}

void CudaOps::apply(const MatmulBackwardInput& op) {
  matmul_.run({.out = op.dx, .a = op.dout, .b = op.weight});
}

void CudaOps::apply(const MatmulBackwardWeight& op) {
  matmul_.run(
      {.out = op.dweight, .a = op.dout, .b = op.x, .transpose_a = true, .accumulate = true});
}

}  // namespace nsa::cuda
