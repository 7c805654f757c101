#pragma once

// Single ops, timed by google-benchmark.

#include <string>

#include "bench/bench_shape.h"
#include "ops/backend.h"

namespace nsa::bench {

/// Prints time, rates and the share of the measured roof of the op `name` (empty: of all of them):
/// a table, or JSON, one object a line: {"kind":"op","op","ms","gflops","gbs","roof"}, then
/// {"kind":"roof","sgemm_gflops","memory_gbs"}. Throws Error (code 2) where there is no such op.
///
/// The roof of an op is the longer of the times that its matrix products take at the rate of sgemm
/// and its traffic at that of memory; the share can exceed 1 where operands stay in the caches.
void bench_ops(Backend& backend, const BenchShape& shape, const std::string& name, bool json);

/// The names, separated by commas.
std::string op_names();

}  // namespace nsa::bench
