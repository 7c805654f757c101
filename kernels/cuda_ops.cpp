#include "kernels/cuda_ops.h"

#include "kernels/common/check.h"
#include "ops/backend.h"

namespace nsa {
namespace cuda {
namespace {

int count_multiprocessors() {
  int device = 0;
  int count = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

}  // namespace

CudaOps::CudaOps(CudaDevice& device, KernelChoice kernels)
    : stream_(device.stream()),
      general_(kernels == KernelChoice::kGeneral),
      multiprocessors_(count_multiprocessors()),
      matmul_(device, stream_),
      scratch_(device, stream_),
      staging_(device.staging()),
      documents_(device, staging_, stream_),
      rope_table_(device, stream_) {}

}  // namespace cuda

bool cuda_available() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

Backend make_cuda_backend(int index, KernelChoice kernels) {
  auto device = std::make_unique<cuda::CudaDevice>(index);
  Backend backend;
  backend.ops = std::make_unique<cuda::CudaOps>(*device, kernels);
  backend.device = std::move(device);
  return backend;
}

}  // namespace nsa
