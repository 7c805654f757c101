#include "model/mlp.h"

namespace nsa {

void mlp_forward(const Step& step, const MlpWeights& w, const MlpActivations& a,
                 const Tensor& out) {
  mlp_expand(step, w, a);
  step.ops.run(MatmulForward{.out = out, .x = a.product, .weight = w.down});
}

void mlp_expand(const Step& step, const MlpWeights& w, const MlpActivations& a) {
  step.ops.run(MatmulForward{.out = a.gate_up, .x = a.normed, .weight = w.gate_up});
  step.ops.run(SwiGluForward{.y = a.product, .gate_up = a.gate_up});
}

void mlp_rebuild(const Step& step, const MlpActivations& a) {
  step.ops.run(SwiGluForward{.y = a.product, .gate_up = a.gate_up});
}

void mlp_backward(const Step& step, const MlpWeights& w, const MlpWeights& dw,
                  const MlpActivations& a, const Activations& shared) {
  const Tensor& dout = shared.dresidual;
  const Tensor& dproduct = shared.dproduct;
  const Tensor& dgate_up = a.gate_up;
  step.ops.run(MatmulBackwardWeight{.dweight = dw.down, .dout = dout, .x = a.product});
  step.ops.run(MatmulBackwardInput{.dx = dproduct, .dout = dout, .weight = w.down});
  step.ops.run(SwiGluBackward{.dgate_up = dgate_up, .dy = dproduct, .gate_up = a.gate_up});
  step.ops.run(MatmulBackwardWeight{.dweight = dw.gate_up, .dout = dgate_up, .x = a.normed});
  step.ops.run(MatmulBackwardInput{.dx = shared.dnormed, .dout = dgate_up, .weight = w.gate_up});
}

}  // namespace nsa
