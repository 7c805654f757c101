#pragma once

// One case for every op of ops/ops.h: operands at the shape of a layer, and what it costs.

#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "bench/bench_data.h"
#include "bench/bench_shape.h"
#include "ops/ops.h"

namespace nsa::bench {

struct OpCase {
  std::function<void(Ops&)> run;  ///< the op once; may be repeated
  double flops = 0;               ///< of its matrix products; 0 where it has none
  double bytes = 0;               ///< operands read and results written, once each
};

struct NamedCase {
  std::string name;  ///< of the op, "matmul_forward"
  /// Makes the operands in `data`, which must live as long as the case.
  std::function<OpCase(const BenchShape& shape, BenchData& data, Ops& ops)> make;
};

/// In the order of ops/ops.h.
std::vector<NamedCase> op_cases();

// The two halves of the above.
std::vector<NamedCase> dense_op_cases();
std::vector<NamedCase> attention_op_cases();
std::vector<NamedCase> optimizer_op_cases();

/// Bytes of the operands that an op reads or writes; one that it does both with stands twice.
double traffic(std::initializer_list<Tensor> operands);

template <class Op>
OpCase case_of(const Op& op, double flops, double bytes) {
  return {.run = [op](Ops& ops) { ops.run(op); }, .flops = flops, .bytes = bytes};
}

}  // namespace nsa::bench
