// PLACEHOLDER to be replaced.
#include "ops/cpu/cpu_ops.h"
namespace nsa {
namespace cpu {
void CpuOps::apply(const GateCombineForward&) { fail("placeholder"); }
void CpuOps::apply(const GateBackward&) { fail("placeholder"); }
}
}
