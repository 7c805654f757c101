#include "bench/attention_bench.h"

#include <cstdio>
#include <string>
#include <vector>

#include "bench/attention_case.h"
#include "bench/bench_data.h"
#include "bench/roof.h"
#include "bench/timing.h"
#include "core/format.h"

namespace nsa::bench {
namespace {

constexpr int kFewestRounds = 5;
constexpr int kMostRounds = 15;
constexpr double kEnoughMilliseconds = 15e3;  // of all rounds: beyond it the fewest must do

/// Rounds of one kind of attention.
struct Times {
  std::vector<double> forward;
  std::vector<double> both;

  template <class Case>
  double add_round(Backend& backend, const Case& attention) {
    Ops& ops = *backend.ops;
    const double fwd = milliseconds(*backend.device, [&] { attention.forward(ops); });
    const double bwd = milliseconds(*backend.device, [&] { attention.backward(ops); });
    forward.push_back(fwd);
    both.push_back(fwd + bwd);
    return fwd + bwd;
  }
};

struct Results {
  double nsa_forward = 0, nsa_both = 0;      ///< ms
  double dense_forward = 0, dense_both = 0;  ///< ms
  double gemm_gflops = 0;
  std::int64_t gemm_extent = 0;
  std::size_t rounds = 0;
};

Results measure(Backend& backend, const BenchShape& shape) {
  BenchData data(*backend.device, shape.dtype);
  const NsaCase nsa(shape, data);
  const DenseCase dense(shape, data);
  Times().add_round(backend, dense);  // touches all memory, fills caches and scratch
  Times().add_round(backend, nsa);
  GemmMeter gemm(backend, shape.dtype);
  std::vector<double> gemm_gflops;
  Times nsa_times;
  Times dense_times;
  double spent = 0;
  for (int round = 0; round < kMostRounds; ++round) {
    if (round >= kFewestRounds && spent > kEnoughMilliseconds) break;
    spent += dense_times.add_round(backend, dense);
    spent += nsa_times.add_round(backend, nsa);
    gemm_gflops.push_back(gemm.measure());
  }
  return {.nsa_forward = median(nsa_times.forward),
          .nsa_both = median(nsa_times.both),
          .dense_forward = median(dense_times.forward),
          .dense_both = median(dense_times.both),
          .gemm_gflops = median(gemm_gflops),
          .gemm_extent = gemm.extent(),
          .rounds = nsa_times.both.size()};
}

double gflops(double flops, double ms) {
  return flops / ms / 1e6;
}

/// Three products of the forward's size: forward once, backward twice.
double dense_model_gflops(const BenchShape& shape, const Results& results) {
  return gflops(3 * DenseCase::executed_forward_flops(shape), results.dense_both);
}

void print_json(const BenchShape& shape, const Results& r) {
  const auto line = [&shape](const char* kind, double forward, double both) {
    return fmt::format(R"({{"kind":"{}","seq":{},"fwd_ms":{:.6g},"fwd_bwd_ms":{:.6g}}})"
                       "\n",
                       kind, shape.seq, forward, both);
  };
  const std::string text =
      line("nsa", r.nsa_forward, r.nsa_both) + line("dense", r.dense_forward, r.dense_both) +
      fmt::format(
          R"({{"kind":"speedup","fwd":{:.6g},"fwd_bwd":{:.6g},"dense_gflops":{:.6g},"{}_gflops":{:.6g}}})"
          "\n",
          r.dense_forward / r.nsa_forward, r.dense_both / r.nsa_both, dense_model_gflops(shape, r),
          gemm_name(shape.dtype), r.gemm_gflops);
  std::fputs(text.c_str(), stdout);
}

void print_table(const Backend& backend, const BenchShape& shape, const Results& r) {
  const std::string gemm = gemm_name(shape.dtype);
  const NsaGeometry& g = shape.geometry;
  const auto line = [&r](const char* kind, double forward, double both, double flops) {
    const double rate = gflops(flops, both);
    return fmt::format("  {:<6}  {:>9.2f}  {:>10.2f}  {:>17.1f}  {:>8.0f} %\n", kind, forward, both,
                       rate, 100 * rate / r.gemm_gflops);
  };
  const double nsa_flops =
      NsaCase::executed_forward_flops(shape) + NsaCase::executed_backward_flops(shape);
  const double dense_flops =
      DenseCase::executed_forward_flops(shape) + DenseCase::executed_backward_flops(shape);
  const double model = dense_model_gflops(shape, r);
  const std::string text =
      fmt::format(
          "attention over {} tokens: {} heads, {} kv heads, head dim {}; {}; median "
          "of {} rounds\n"
          "nsa: rate {}, overlap {}, block {}, top_n {}, window {}\n"
          "  {:<6}  {:>9}  {:>10}  {:>17}  {:>10}\n",
          shape.seq, shape.heads, shape.kv_heads, shape.head_dim, setting(backend, shape.dtype),
          r.rounds, g.rate, g.overlap, g.select_block, g.top_n, g.window, "", "fwd ms",
          "fwd+bwd ms", "executed GFLOP/s", "of " + gemm) +
      line("nsa", r.nsa_forward, r.nsa_both, nsa_flops) +
      line("dense", r.dense_forward, r.dense_both, dense_flops) +
      fmt::format(
          "  nsa is {:.2f} times as fast forward, {:.2f} times forward and backward\n"
          "  dense, model FLOPs: {:.1f} GFLOP/s, {:.0f} % of {} ({:.1f} GFLOP/s at {}^3)\n",
          r.dense_forward / r.nsa_forward, r.dense_both / r.nsa_both, model,
          100 * model / r.gemm_gflops, gemm, r.gemm_gflops, r.gemm_extent);
  std::fputs(text.c_str(), stdout);
}

}  // namespace

void bench_attention(Backend& backend, const BenchShape& shape, bool json) {
  const Results results = measure(backend, shape);
  if (json) {
    print_json(shape, results);
  } else {
    print_table(backend, shape, results);
  }
}

}  // namespace nsa::bench
