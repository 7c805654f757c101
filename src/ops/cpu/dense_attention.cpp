#include "ops/dense_attention.h"

#include "ops/cpu/attention_core.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/vector_math.h"

namespace nsa::cpu {
namespace {

constexpr KeyRule kRule{.kind = KeyRule::Kind::kCausal, .geometry = {}};

/// deltas [tokens, heads] = <out, dout>.
template <class T>
void fill_deltas(const Workers& workers, const DenseAttentionBackward& op, T* deltas) {
  const T* out = op.out.as<T>();
  const T* dout = op.dout.as<T>();
  const std::int64_t heads = op.out.dim(1);
  const std::int64_t dim = op.out.dim(2);
  workers.pool.for_each(op.out.dim(0), [&](std::int64_t t, int /*worker*/) {
    for (std::int64_t row = t * heads; row < (t + 1) * heads; ++row) {
      deltas[row] = dot(out + row * dim, dout + row * dim, dim);
    }
  });
}

}  // namespace

void CpuOps::apply(const DenseAttentionForward& op) {
  with_float(op.q.dtype(), [&]<class T>() {
    attend(Workers{pool_, scratch_}, attention_of<T>(op, kRule), op.out.as<T>(), op.lse.as<T>());
  });
}

void CpuOps::apply(const DenseAttentionBackward& op) {
  with_float(op.q.dtype(), [&]<class T>() {
    const Workers workers{pool_, scratch_};
    Scratch::Frame frame(scratch_.front());
    T* deltas = frame.take<T>(op.lse.size());
    fill_deltas(workers, op, deltas);
    attend_backward(workers, attention_of<T>(op, kRule),
                    AttentionGradients<T>{.dq = op.dq.as<T>(),
                                          .dk = op.dk.as<T>(),
                                          .dv = op.dv.as<T>(),
                                          .lse = op.lse.as<T>(),
                                          .dout = op.dout.as<T>(),
                                          .gates = nullptr,
                                          .deltas = deltas,
                                          .stat_stride = 1,
                                          .accumulate_dq = false});
  });
}

}  // namespace nsa::cpu
