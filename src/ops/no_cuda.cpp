// Linked when the CUDA backend is not: says so, and how to get it.

#include "core/error.h"
#include "ops/backend.h"

namespace nsa {

bool cuda_available() {
  return false;
}

Backend make_cuda_backend(int /*index*/, KernelChoice /*kernels*/) {
  fail_config(
      "run.device asks for cuda, but this program was built without it; use device: cpu, or a "
      "program built with the cuda backend");
}

}  // namespace nsa
