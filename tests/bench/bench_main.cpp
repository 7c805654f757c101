// nsa_bench: how fast the ops are, and NSA against dense attention.

#include <string>

#include <CLI/CLI.hpp>

#include "bench/attention_bench.h"
#include "bench/op_bench.h"
#include "command_line.h"
#include "core/error.h"
#include "core/standard_streams.h"
#include "ops/backend.h"

namespace nsa::bench {
namespace {

struct Options {
  std::string device = "cpu";
  std::string kernels = "auto";
  std::string op;
  bool attention = false;
  bool comm = false;
  bool json = false;
  std::string dtype;  ///< empty: what the device trains in
  BenchShape shape;
};

constexpr std::int64_t kOpTokens = 4096;
constexpr std::int64_t kAttentionTokens = 8192;

void describe(CLI::App& app, Options& options) {
  const CLI::Range positive(std::int64_t{1}, std::int64_t{1} << 24);
  BenchShape& shape = options.shape;
  app.add_option("--device", options.device, "cpu, or cuda where this program has it")
      ->capture_default_str();
  app.add_option("--kernels", options.kernels,
                 "on cuda: auto, or general for those that every GPU from sm_80 on runs")
      ->check(CLI::IsMember({"auto", "general"}))
      ->capture_default_str();
  app.add_option("--dtype", options.dtype,
                 "fp32, or bf16 on cuda; default: fp32 on cpu, bf16 on cuda");
  app.add_option("--op", options.op, "one op by its name; default: all of them");
  app.add_flag("--attention", options.attention, "NSA and dense attention side by side");
  app.add_flag("--comm", options.comm, "not in this version");
  app.add_option("--seq", shape.seq, "tokens; default 4096, with --attention 8192")
      ->check(positive);
  app.add_option("--heads", shape.heads, "query heads")->check(positive)->capture_default_str();
  app.add_option("--kv-heads", shape.kv_heads, "KV heads")->check(positive)->capture_default_str();
  app.add_option("--head-dim", shape.head_dim, "of keys and values")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--rate", shape.geometry.rate, "tokens per compressed token")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--overlap", shape.geometry.overlap, "compressed blocks are overlap x rate long")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--top-n", shape.geometry.top_n, "selected blocks of 64 tokens per query")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--window", shape.geometry.window, "tokens of the sliding window")
      ->check(positive)
      ->capture_default_str();
  app.add_flag("--json", options.json, "JSON, one object a line, in place of the table");
  app.footer(
      "sgemm (cpu) is measured with m = n = k = 1024, one product a thread, all threads side by "
      "side "
      "(straight\nfrom the BLAS, nothing cut into tiles). --attention times from q, k, v and gate "
      "logits to the output and\nback: compression, scores and top-n, three branches, gates; "
      "without projections and RoPE. dense_gflops\ncounts two products forward and four backward "
      "over the causal pairs, in the time of both.\nThreads: OMP_NUM_THREADS, else one a core.");
}

void check_shape(const BenchShape& shape) {
  const NsaGeometry& g = shape.geometry;
  const auto text = [](std::int64_t number) { return std::to_string(number); };
  if (shape.heads % shape.kv_heads != 0) {
    fail_config("--kv-heads is " + text(shape.kv_heads) + "; it must divide --heads (" +
                text(shape.heads) + ")");
  }
  if (g.select_block % g.rate != 0) {
    fail_config("--rate is " + text(g.rate) + "; it must divide the selection block of " +
                text(g.select_block) + " tokens");
  }
  if (g.compress_block() > g.select_block) {
    fail_config("--overlap is " + text(g.overlap) + "; at --rate " + text(g.rate) +
                " it can be at most " + text(g.select_block / g.rate));
  }
  if (g.top_n < g.initial + g.local) {
    fail_config("--top-n is " + text(g.top_n) + "; it must be at least " +
                text(g.initial + g.local) + ", the blocks that every query takes");
  }
}

DType element_type(const Options& options) {
  const DType best = options.device == "cpu" ? DType::kF32 : DType::kBF16;
  if (options.dtype.empty() || options.dtype == name_of(best)) return best;
  if (options.dtype == name_of(DType::kF32)) return DType::kF32;
  fail_config("--dtype is '" + options.dtype + "'; on " + options.device + " it must be fp32" +
              (best == DType::kF32 ? "" : " or bf16"));
}

void run(Options options) {
  if (options.comm) fail_config("--comm is not in this version");
  if (options.attention && !options.op.empty()) {
    fail_config("--attention and --op are two benchmarks; give one of them");
  }
  if (options.device != "cpu" && options.device != "cuda") {
    fail_config("--device is '" + options.device + "'; it must be cpu or cuda");
  }
  if (options.device == "cuda" && !cuda_available()) {
    fail_config("--device is cuda, but this program was built without it or finds no GPU; use cpu");
  }
  options.shape.dtype = element_type(options);
  check_shape(options.shape);
  if (options.shape.seq == 0) options.shape.seq = options.attention ? kAttentionTokens : kOpTokens;
  Backend backend =
      make_backend(options.device, 0,
                   options.kernels == "general" ? KernelChoice::kGeneral : KernelChoice::kAuto);
  if (options.attention) {
    bench_attention(backend, options.shape, options.json);
  } else {
    bench_ops(backend, options.shape, options.op, options.json);
  }
}

ExitCode run_command_line(int argc, char** argv) {
  CLI::App app("Times the ops, and NSA against dense attention", "nsa_bench");
  Options options;
  describe(app, options);
  if (!read_command_line(app, argc, argv)) return ExitCode::kDone;
  run(options);
  check_standard_output();
  return ExitCode::kDone;
}

}  // namespace
}  // namespace nsa::bench

int main(int argc, char** argv) {
  return nsa::run_program([&] { return nsa::bench::run_command_line(argc, argv); });
}
