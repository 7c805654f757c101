#pragma once

// NSA against dense attention, side by side.

#include "bench/bench_shape.h"
#include "ops/backend.h"

namespace nsa::bench {

/// Prints medians of rounds in which dense, NSA and sgemm take turns: a table, or JSON, one object
/// a line:
/// {"kind":"nsa"|"dense","seq","fwd_ms","fwd_bwd_ms"}, then {"kind":"speedup","fwd","fwd_bwd",
/// "dense_gflops","sgemm_gflops"}. dense_gflops: model FLOPs (two products forward, four backward,
/// over the causal pairs) by the time of forward and backward.
void bench_attention(Backend& backend, const BenchShape& shape, bool json);

}  // namespace nsa::bench
