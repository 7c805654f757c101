#include "ops/loss.h"

#include <algorithm>
#include <cmath>

#include "core/batch.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/tiles.h"
#include "ops/cpu/vector_math.h"

namespace nsa::cpu {
namespace {

/// Rows whose logits are made, reduced and used by one worker while they are in its cache.
constexpr std::int64_t kTileRows = 128;

/// What one row adds to the loss.
struct RowLoss {
  double ce = 0;
  double z = 0;
};

/// The loss of one row; where gradients are wanted its logits become their gradient.
template <class T>
RowLoss row_loss(const LinearCrossEntropy& op, std::int32_t target, T* logits) {
  const std::int64_t vocabulary = op.weight.dim(0);
  const bool gradients = op.dx.defined();
  if (target == kIgnoredTarget) {
    if (gradients) std::fill_n(logits, vocabulary, T(0));
    return {};
  }
  const T most = max_of(logits, vocabulary);
  const auto at_target = static_cast<double>(logits[target]);
  const auto sum = static_cast<double>(exp_and_sum(logits, vocabulary, most));
  const double lse = static_cast<double>(most) + std::log(sum);
  if (gradients) {
    const T scale = static_cast<T>(op.grad_scale * (1.0 + 2.0 * op.z_loss * lse) / sum);
    for (std::int64_t c = 0; c < vocabulary; ++c) logits[c] *= scale;
    logits[target] -= static_cast<T>(op.grad_scale);
  }
  return {.ce = lse - at_target, .z = op.z_loss * lse * lse};
}

/// Rows [begin, end) of the chunk that starts at `first`: logits, losses, and dx.
template <class T>
void loss_tile(const LinearCrossEntropy& op, std::int64_t first, std::int64_t begin,
               std::int64_t end, RowLoss* losses) {
  const std::int64_t dim = op.x.dim(1);
  const std::int64_t vocabulary = op.weight.dim(0);
  T* logits = op.logits.as<T>() + begin * vocabulary;
  gemm(Gemm<T>{.transpose_b = true,
               .m = end - begin,
               .n = vocabulary,
               .k = dim,
               .a = op.x.as<T>() + (first + begin) * dim,
               .lda = dim,
               .b = op.weight.as<T>(),
               .ldb = dim,
               .c = logits,
               .ldc = vocabulary});
  for (std::int64_t row = begin; row < end; ++row) {
    losses[row] = row_loss<T>(op, op.targets.as<std::int32_t>()[first + row],
                              logits + (row - begin) * vocabulary);
    if (op.token_loss.defined()) {
      op.token_loss.as<T>()[first + row] = static_cast<T>(losses[row].ce);
    }
  }
  if (!op.dx.defined()) return;
  gemm(Gemm<T>{.m = end - begin,
               .n = dim,
               .k = vocabulary,
               .a = logits,
               .lda = vocabulary,
               .b = op.weight.as<T>(),
               .ldb = dim,
               .c = op.dx.as<T>() + (first + begin) * dim,
               .ldc = dim});
}

/// dweight += dlogits^T * x over the chunk's rows.
template <class T>
void add_weight_gradient(const LinearCrossEntropy& op, std::int64_t first, std::int64_t rows,
                         const Tile& tile) {
  const std::int64_t dim = op.x.dim(1);
  const std::int64_t vocabulary = op.weight.dim(0);
  gemm(Gemm<T>{.transpose_a = true,
               .m = tile.rows,
               .n = tile.columns,
               .k = rows,
               .a = op.logits.as<T>() + tile.row,
               .lda = vocabulary,
               .b = op.x.as<T>() + first * dim + tile.column,
               .ldb = dim,
               .beta = 1,
               .c = op.dweight.as<T>() + tile.row * dim + tile.column,
               .ldc = dim});
}

}  // namespace

void CpuOps::apply(const LinearCrossEntropy& op) {
  const std::int64_t rows = op.x.dim(0);
  const std::int64_t chunk = op.logits.dim(0);
  const Tiles weight_tiles = matmul_tiles(op.weight.dim(0), op.weight.dim(1));
  auto* loss = op.loss.as<double>();
  with_float(op.x.dtype(), [&]<class T>() {
    Scratch::Frame frame(scratch(0));
    auto* losses = frame.take<RowLoss>(std::min(chunk, rows));
    for (std::int64_t first = 0; first < rows; first += chunk) {
      const std::int64_t count = std::min(chunk, rows - first);
      for_each_part(pool_, Parts::of(count, kTileRows, 16),
                    [&](std::int64_t begin, std::int64_t end) {
                      loss_tile<T>(op, first, begin, end, losses);
                    });
      for (std::int64_t row = 0; row < count; ++row) {
        loss[0] += losses[row].ce;
        loss[1] += losses[row].z;
      }
      if (!op.dweight.defined()) continue;
      for_each_tile(pool_, weight_tiles,
                    [&](const Tile& tile) { add_weight_gradient<T>(op, first, count, tile); });
    }
  });
}

}  // namespace nsa::cpu
