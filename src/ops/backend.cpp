#include "ops/backend.h"

#include <charconv>

#include "core/parallel.h"

namespace nsa {

Backend make_backend(const std::string& device, int threads, KernelChoice kernels) {
  if (device == "cpu") {
    return make_cpu_backend(threads > 0 ? threads : WorkerPool::default_threads());
  }
  if (device == "cuda") return make_cuda_backend(0, kernels);
  if (device.rfind("cuda:", 0) == 0) {
    int index = -1;
    const char* end = device.data() + device.size();
    const auto [stop, error] = std::from_chars(device.data() + 5, end, index);
    if (error == std::errc{} && stop == end && index >= 0) {
      return make_cuda_backend(index, kernels);
    }
  }
  fail_config("run.device is '" + device + "'; it must be auto, cpu, cuda or cuda:N");
}

}  // namespace nsa
