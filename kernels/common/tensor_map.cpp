#include "kernels/common/tensor_map.h"

#include "kernels/common/check.h"

namespace nsa::cuda {
namespace {

/// The driver's function, found through the runtime: nothing links against the driver itself.
PFN_cuTensorMapEncodeTiled_v12000 encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  constexpr unsigned kVersion = 12000;  // the first that has it
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kVersion,
                                         cudaEnableDefault, &result));
  nsa::check(result == cudaDriverEntryPointSuccess && function != nullptr,
             "CUDA: the driver has no cuTensorMapEncodeTiled");
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

}  // namespace

CUtensorMap map_rows(const bf16* data, std::int64_t rows, std::int64_t columns,
                     std::int32_t box_rows) {
  static const PFN_cuTensorMapEncodeTiled_v12000 encode = encoder();
  CUtensorMap map{};
  const cuuint64_t extents[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(columns) * sizeof(bf16)};
  const cuuint32_t box[] = {kBoxColumns, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t steps[] = {1, 1};
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<bf16*>(data), extents, strides,
             box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  nsa::check(result == CUDA_SUCCESS, "CUDA: a matrix that the copy engine does not take");
  return map;
}

}  // namespace nsa::cuda
