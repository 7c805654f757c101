// PLACEHOLDER to be replaced.
#include "ops/cpu/cpu_ops.h"
namespace nsa {
std::int64_t compressed_rows(const Documents& documents, const NsaGeometry& geometry) {
  std::int64_t n = 0;
  for (std::int64_t d = 0; d < documents.count(); ++d) n += geometry.compressed_blocks(static_cast<std::int32_t>(documents.length(d)));
  return n;
}
namespace cpu {
void CpuOps::apply(const CompressForward&) { fail("placeholder"); }
void CpuOps::apply(const CompressBackward&) { fail("placeholder"); }
}
}
