#include "ops/cast.h"

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/tiles.h"

namespace nsa::cpu {

void CpuOps::apply(const Cast& op) {
  with_float(op.in.dtype(), [&]<class From>() {
    with_float(op.out.dtype(), [&]<class To>() {
      const From* in = op.in.as<From>();
      To* out = op.out.as<To>();
      for_each_part(pool_, row_parts(op.in.size(), 1), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) out[i] = static_cast<To>(in[i]);
      });
    });
  });
}

}  // namespace nsa::cpu
