#include "bench/op_bench.h"

#include <algorithm>
#include <benchmark/benchmark.h>
#include <cstdio>
#include <vector>

#include "bench/bench_data.h"
#include "bench/op_cases.h"
#include "bench/roof.h"
#include "core/error.h"
#include "core/format.h"

namespace nsa::bench {
namespace {

constexpr int kCallsOnGpu = 10;
constexpr double kSeconds = 0.15;  // for which an op is repeated, at least

/// Keeps the time of the one run that it sees; prints nothing.
class TimeKeeper : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context& /*context*/) override { return true; }  // NOLINT: its name
  void ReportRuns(const std::vector<Run>& runs) override {                  // NOLINT: its name
    for (const Run& run : runs) {
      if (run.error_occurred) fail_runtime(run.benchmark_name() + ": " + run.error_message);
      milliseconds_ = run.GetAdjustedRealTime();
    }
  }
  double milliseconds() const { return milliseconds_; }

 private:
  double milliseconds_ = 0;
};

/// Wall-clock time of one call, the mean over as many as google-benchmark finds fit.
double time_case(const std::string& name, const OpCase& op, Backend& backend) {
  op.run(*backend.ops);  // touches all memory, fills caches and scratch
  // Between two waits for a GPU there must be enough work to hide them.
  const int calls = is_cpu(backend) ? 1 : kCallsOnGpu;
  benchmark::RegisterBenchmark(name.c_str(),
                               [&](benchmark::State& state) {
                                 while (state.KeepRunningBatch(calls)) {
                                   for (int i = 0; i < calls; ++i) op.run(*backend.ops);
                                   backend.device->synchronize();
                                 }
                               })
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond)
      ->MinTime(kSeconds);
  TimeKeeper keeper;
  benchmark::RunSpecifiedBenchmarks(&keeper);
  benchmark::ClearRegisteredBenchmarks();
  return keeper.milliseconds();
}

std::vector<NamedCase> wanted_cases(const std::string& name) {
  std::vector<NamedCase> cases = op_cases();
  if (name.empty()) return cases;
  std::erase_if(cases, [&name](const NamedCase& named) { return named.name != name; });
  if (cases.empty()) fail_config("--op is '" + name + "'; it must be one of " + op_names());
  return cases;
}

std::string json_line(const std::string& name, const OpCase& op, double ms, const Roof& roof) {
  const double best_ms = std::max(op.flops / roof.gemm_gflops, op.bytes / roof.memory_gbs) / 1e6;
  return fmt::format(
      R"({{"kind":"op","op":"{}","ms":{:.6g},"gflops":{:.6g},"gbs":{:.6g},"roof":{:.4g}}})"
      "\n",
      name, ms, op.flops / ms / 1e6, op.bytes / ms / 1e6, best_ms / ms);
}

std::string table_line(const std::string& name, const OpCase& op, double ms, const Roof& roof) {
  const double best_ms = std::max(op.flops / roof.gemm_gflops, op.bytes / roof.memory_gbs) / 1e6;
  const std::string rate = op.flops > 0 ? fmt::format("{:.1f}", op.flops / ms / 1e6) : "-";
  return fmt::format("{:<30}  {:>10.4f}  {:>9}  {:>8.2f}  {:>6.0f} %\n", name, ms, rate,
                     op.bytes / ms / 1e6, 100 * best_ms / ms);
}

}  // namespace

std::string op_names() {
  std::string names;
  for (const NamedCase& named : op_cases()) names += (names.empty() ? "" : ", ") + named.name;
  return names;
}

void bench_ops(Backend& backend, const BenchShape& shape, const std::string& name, bool json) {
  const std::vector<NamedCase> cases = wanted_cases(name);
  const Roof roof = measure_roof(backend, shape.dtype);
  if (!json) {
    std::fputs(
        fmt::format("{} tokens, {} heads, {} kv heads, head dim {}; {}\n"
                    "roof: {} {:.1f} GFLOP/s ({}^3), memory {:.1f} GB/s (read and written)\n"
                    "{:<30}  {:>10}  {:>9}  {:>8}  {:>8}\n",
                    shape.seq, shape.heads, shape.kv_heads, shape.head_dim,
                    setting(backend, shape.dtype), gemm_name(shape.dtype), roof.gemm_gflops,
                    roof.gemm_extent, roof.memory_gbs, "op", "ms", "GFLOP/s", "GB/s", "of roof")
            .c_str(),
        stdout);
  }
  for (const NamedCase& named : cases) {
    BenchData data(*backend.device, shape.dtype);
    const OpCase op = named.make(shape, data, *backend.ops);
    const double ms = time_case(named.name, op, backend);
    const auto line = json ? json_line : table_line;
    std::fputs(line(named.name, op, ms, roof).c_str(), stdout);
    std::fflush(stdout);
  }
  if (json) {
    std::fputs(fmt::format(R"({{"kind":"roof","{}_gflops":{:.6g},"memory_gbs":{:.6g}}})"
                           "\n",
                           gemm_name(shape.dtype), roof.gemm_gflops, roof.memory_gbs)
                   .c_str(),
               stdout);
  }
}

}  // namespace nsa::bench
