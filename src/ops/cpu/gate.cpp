// Gates: sigmoid, mix and the gradients that the three branch backwards share.

#include <algorithm>
#include <array>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/vector_math.h"

namespace nsa::cpu {
namespace {

/// Tokens per index of the parallel loop; fixed, so that the sums of dbias are too.
constexpr std::int64_t kChunkTokens = 64;

template <class T>
using BranchData = std::array<const T*, 3>;

template <class T>
BranchData<T> data_of(const std::array<Tensor, 3>& branches) {
  BranchData<T> data{};
  for (std::size_t b = 0; b < data.size(); ++b) {
    data[b] = branches[b].defined() ? branches[b].as<T>() : nullptr;
  }
  return data;
}

/// Tokens [begin, end) of the forward.
template <class T>
void combine(const GateCombineForward& op, std::int64_t begin, std::int64_t end) {
  const BranchData<T> branches = data_of<T>(op.branches);
  const std::int64_t heads = op.out.dim(1);
  const std::int64_t dim = op.out.dim(2);
  const T* bias = op.bias.as<T>();
  for (std::int64_t row = begin * heads; row < end * heads; ++row) {
    const T* logits = op.logits.as<T>() + row * 3;
    T* gates = op.gates.as<T>() + row * 3;
    T* out = op.out.as<T>() + row * dim;
    std::fill_n(out, dim, T(0));
    for (std::int64_t b = 0; b < 3; ++b) {
      const T gate = sigmoid(logits[b] + bias[row % heads * 3 + b]);
      gates[b] = gate;
      const T* branch = branches[static_cast<std::size_t>(b)];
      if (branch == nullptr) continue;
      add_scaled(out, gate, branch + row * dim, dim);
    }
  }
}

/// Tokens [begin, end) of the backward; `dbias` [3 * heads] gets their sum.
template <class T>
void differentiate(const GateBackward& op, std::int64_t begin, std::int64_t end, double* dbias) {
  const BranchData<T> branches = data_of<T>(op.branches);
  const std::int64_t heads = op.dout.dim(1);
  const std::int64_t dim = op.dout.dim(2);
  std::fill_n(dbias, 3 * heads, 0.0);
  for (std::int64_t row = begin * heads; row < end * heads; ++row) {
    const T* dout = op.dout.as<T>() + row * dim;
    for (std::int64_t b = 0; b < 3; ++b) {
      const std::int64_t at = row * 3 + b;
      const T* branch = branches[static_cast<std::size_t>(b)];
      const T dgate = branch == nullptr ? T(0) : dot(dout, branch + row * dim, dim);
      const T gate = op.gates.as<T>()[at];
      const T dlogit = dgate * gate * (T(1) - gate);
      op.deltas.as<T>()[at] = gate * dgate;
      op.dlogits.as<T>()[at] = dlogit;
      dbias[row % heads * 3 + b] += static_cast<double>(dlogit);
    }
  }
}

}  // namespace

void CpuOps::apply(const GateCombineForward& op) {
  const std::int64_t tokens = op.out.dim(0);
  const std::int64_t chunks = (tokens + kChunkTokens - 1) / kChunkTokens;
  with_float(op.out.dtype(), [&]<class T>() {
    pool_.for_each(chunks, [&](std::int64_t chunk, int) {
      const std::int64_t begin = chunk * kChunkTokens;
      combine<T>(op, begin, std::min(tokens, begin + kChunkTokens));
    });
  });
}

void CpuOps::apply(const GateBackward& op) {
  const std::int64_t tokens = op.dout.dim(0);
  const std::int64_t chunks = (tokens + kChunkTokens - 1) / kChunkTokens;
  const std::int64_t width = op.dbias.size();
  with_float(op.dout.dtype(), [&]<class T>() {
    Scratch::Frame frame(scratch(0));
    double* partial = frame.take<double>(chunks * width);
    pool_.for_each(chunks, [&](std::int64_t chunk, int) {
      const std::int64_t begin = chunk * kChunkTokens;
      differentiate<T>(op, begin, std::min(tokens, begin + kChunkTokens), partial + chunk * width);
    });
    T* dbias = op.dbias.as<T>();
    for (std::int64_t i = 0; i < width; ++i) {
      double sum = 0;
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk) sum += partial[chunk * width + i];
      dbias[i] += static_cast<T>(sum);
    }
  });
}

}  // namespace nsa::cpu
