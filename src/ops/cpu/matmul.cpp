// PLACEHOLDER to be replaced.
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/gemm.h"
namespace nsa {
namespace cpu {
void gemm(const Gemm<float>&) { fail("placeholder"); }
void gemm(const Gemm<double>&) { fail("placeholder"); }
void use_one_blas_thread() {}
void CpuOps::apply(const MatmulForward&) { fail("placeholder"); }
void CpuOps::apply(const MatmulBackwardInput&) { fail("placeholder"); }
void CpuOps::apply(const MatmulBackwardWeight&) { fail("placeholder"); }
}
}
