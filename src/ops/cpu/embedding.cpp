// PLACEHOLDER to be replaced.
#include "ops/cpu/cpu_ops.h"
namespace nsa {
namespace cpu {
void CpuOps::apply(const EmbeddingForward&) { fail("placeholder"); }
void CpuOps::apply(const EmbeddingBackward&) { fail("placeholder"); }
}
}
