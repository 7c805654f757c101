#include "ops/cpu/attention_core.h"
#include "ops/cpu/cpu_ops.h"

namespace nsa::cpu {

void CpuOps::apply(const WindowAttentionForward& op) {
  const KeyRule rule{.kind = KeyRule::Kind::kWindow, .geometry = op.geometry};
  with_float(op.q.dtype(), [&]<class T>() {
    attend(Workers{pool_, scratch_}, attention_of<T>(op, rule), op.out.as<T>(), op.lse.as<T>());
  });
}

void CpuOps::apply(const WindowAttentionBackward& op) {
  const KeyRule rule{.kind = KeyRule::Kind::kWindow, .geometry = op.geometry};
  with_float(op.q.dtype(), [&]<class T>() {
    attend_backward(Workers{pool_, scratch_}, attention_of<T>(op, rule),
                    gradients_of<T>(op, kWindow));
  });
}

}  // namespace nsa::cpu
