// PLACEHOLDER to be replaced.
#include "ops/cpu/cpu_ops.h"
namespace nsa {
namespace cpu {
void CpuOps::apply(const SelectBlocks&) { fail("placeholder"); }
}
}
