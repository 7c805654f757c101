#include "ops/embedding.h"

#include <algorithm>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/tiles.h"

namespace nsa::cpu {

void CpuOps::apply(const EmbeddingForward& op) {
  const std::int64_t dim = op.out.dim(1);
  const std::int32_t* tokens = op.tokens.as<std::int32_t>();
  with_float(op.out.dtype(), [&]<class T>() {
    for_each_part(pool_, row_parts(op.out.dim(0), dim), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        std::copy_n(op.table.as<T>() + tokens[row] * dim, dim, op.out.as<T>() + row * dim);
      }
    });
  });
}

void CpuOps::apply(const EmbeddingBackward& op) {
  // Workers own columns, not rows: no two ever add to one element, and each walks the rows in
  // order. 32 columns are whole cache lines.
  constexpr std::int64_t kColumns = 32;
  const std::int64_t dim = op.dtable.dim(1);
  const std::int64_t rows = op.dout.dim(0);
  const std::int32_t* tokens = op.tokens.as<std::int32_t>();
  with_float(op.dtable.dtype(), [&]<class T>() {
    const Parts columns = {.count = dim, .size = kColumns};
    for_each_part(pool_, columns, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = 0; row < rows; ++row) {
        const T* from = op.dout.as<T>() + row * dim;
        T* to = op.dtable.as<T>() + tokens[row] * dim;
        for (std::int64_t c = begin; c < end; ++c) to[c] += from[c];
      }
    });
  });
}

}  // namespace nsa::cpu
