#pragma once

// The configuration of a run as plain structs: no YAML, no logic. Field names are the YAML keys.
// Filled by config/parse; a value that says "auto" in YAML is an empty optional here until
// config/resolve has chosen it.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/kernel_choice.h"
#include "ops/gate.h"
#include "ops/nsa_compress.h"
#include "ops/nsa_geometry.h"

namespace nsa {

struct RunConfig {
  std::string name = "run";
  std::string out_dir = "out/run";  ///< as written: counts from the working directory
  std::uint64_t seed = 1337;
  std::string device = "auto";  ///< auto | cpu | cuda | cuda:N
  KernelChoice kernels = KernelChoice::kAuto;
  std::optional<double> max_minutes;
  std::optional<std::int64_t> stop_after;  ///< save after this step and leave with code 75
  friend bool operator==(const RunConfig&, const RunConfig&) = default;
};

struct ModelConfig {
  std::string preset;  ///< empty: none
  std::int64_t vocab_size = 32768;
  std::int64_t layers = 12;
  std::int64_t hidden = 1024;
  std::int64_t heads = 16;
  std::int64_t kv_heads = 1;
  std::int64_t head_dim = 0;    ///< resolved: hidden / heads unless given
  std::int64_t v_head_dim = 0;  ///< resolved: head_dim unless given
  std::int64_t ffn = 2816;
  double rope_theta = 10000.0;
  std::int64_t rope_dim = 0;  ///< resolved: head_dim unless given; 0 given = no rotation
  double norm_eps = 1.0e-5;
  bool qk_norm = false;
  bool tie_embeddings = true;
  double init_std = 0.02;  ///< of the initial weights of matrices
  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

enum class AttentionKind : std::uint8_t { kNsa, kDense };
/// Where RoPE meets compression: on the compressed key, on the tokens before phi, or not at all.
enum class CompressRope : std::uint8_t { kAfter, kBefore, kNone };

struct CompressConfig {
  Phi phi = Phi::kPoolMlp;
  std::int64_t rate = 16;
  std::int64_t overlap = 2;
  std::int64_t hidden_key = 0;    ///< MLP width for keys; resolved: compress.hidden, else head_dim
  std::int64_t hidden_value = 0;  ///< for values; resolved: compress.hidden, else v_head_dim
  std::int64_t bins = 32;
  bool rate1_bypass = true;
  CompressRope rope = CompressRope::kAfter;
  CompressPosition position = CompressPosition::kCenter;
  friend bool operator==(const CompressConfig&, const CompressConfig&) = default;
};

struct SelectConfig {
  std::int64_t block = 64;
  std::int64_t top_n = 16;
  std::int64_t initial = 1;
  std::int64_t local = 2;
  friend bool operator==(const SelectConfig&, const SelectConfig&) = default;
};

struct AttentionConfig {
  AttentionKind kind = AttentionKind::kNsa;
  std::vector<std::int64_t> dense_layers;
  /// Which branches reach the output, by Branch. The selected branch needs compressed keys to score
  /// with even where the compressed branch itself is off.
  bool compressed = true;
  bool selected = true;
  bool window_branch = true;
  CompressConfig compress;
  SelectConfig select;
  std::int64_t window = 512;
  bool share_kv = false;
  friend bool operator==(const AttentionConfig&, const AttentionConfig&) = default;
};

struct DocSeparator {
  std::optional<std::int64_t> id;
  bool before = true;  ///< the separator stands before (llm.c) or after each document
  friend bool operator==(const DocSeparator&, const DocSeparator&) = default;
};

struct DataConfig {
  std::vector<std::string> train;  ///< resolved paths or globs
  std::vector<std::string> val;
  std::string format = "auto";
  std::string text_key = "text";
  bool doc_mask = false;
  DocSeparator doc_sep;
  std::string on_bad_line = "error";
  std::string on_change = "error";
  bool shuffle = true;
  bool check_tokens = true;
  friend bool operator==(const DataConfig&, const DataConfig&) = default;
};

struct TokenizerConfig {
  std::string model;  ///< resolved path; empty: none (no samples)
  std::optional<std::int64_t> eos_id;
  friend bool operator==(const TokenizerConfig&, const TokenizerConfig&) = default;
};

struct TrainConfig {
  std::int64_t seq_len = 2048;
  std::int64_t tokens_per_step = 524288;
  std::optional<std::int64_t> micro_batch;  ///< sequences, of the first stage; empty: auto
  // Exactly one of the three is set.
  std::optional<std::int64_t> steps;
  std::optional<double> epochs;
  std::optional<std::int64_t> tokens;
  friend bool operator==(const TrainConfig&, const TrainConfig&) = default;
};

struct OptimConfig {
  double lr = 6.0e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1.0e-8;
  double weight_decay = 0.1;
  double clip = 1.0;
  double z_loss = 0;
  friend bool operator==(const OptimConfig&, const OptimConfig&) = default;
};

/// A count in steps, or in tokens when it was written with a K/M/B suffix.
struct StepsOrTokens {
  std::int64_t count = 0;
  bool in_tokens = false;
  friend bool operator==(const StepsOrTokens&, const StepsOrTokens&) = default;
};

enum class LrKind : std::uint8_t { kConstant, kLinear, kCosine, kWsd };
enum class DecayShape : std::uint8_t { kLinear, kSqrt, kCosine };

struct LrConfig {
  LrKind kind = LrKind::kCosine;
  StepsOrTokens warmup{700, false};
  double min_ratio = 0.1;
  double decay = 0.2;                      ///< wsd: fraction of the run that decays
  DecayShape shape = DecayShape::kLinear;  ///< wsd: shape of that tail
  friend bool operator==(const LrConfig&, const LrConfig&) = default;
};

/// One stage with everything filled in (what an entry leaves out was inherited; `rate: auto` was
/// chosen from seq_len). Stages stand in order; the first has from = 0.
struct StageConfig {
  StepsOrTokens from;
  std::int64_t seq_len = 0;
  std::int64_t rate = 0;
  std::int64_t tokens_per_step = 0;
  std::optional<std::int64_t> micro_batch{};  ///< sequences; empty: auto
  std::int64_t rewarm = 0;  ///< steps of linear learning-rate re-warm at the start of the stage
  friend bool operator==(const StageConfig&, const StageConfig&) = default;
};

struct ScheduleConfig {
  LrConfig lr;
  std::vector<StageConfig> stages;  ///< at least one after parsing
  friend bool operator==(const ScheduleConfig&, const ScheduleConfig&) = default;
};

struct PrecisionConfig {
  std::string compute = "auto";  ///< auto | fp32 | fp64 (cpu alone) | bf16 (cuda alone)
  std::string master = "fp32";
  std::string grad_accum = "fp32";
  std::string optim_states = "fp32";  ///< fp32 | bf16: of AdamW's moments
  friend bool operator==(const PrecisionConfig&, const PrecisionConfig&) = default;
};

enum class Recompute : std::uint8_t { kNone, kSelective, kFull };

struct MemoryConfig {
  Recompute recompute = Recompute::kNone;
  std::optional<std::int64_t> logits_chunks;  ///< empty: auto
  std::string offload = "none";               ///< none | optimizer
  friend bool operator==(const MemoryConfig&, const MemoryConfig&) = default;
};

struct CheckpointConfig {
  std::string dir;            ///< resolved: <out_dir>/ckpt
  std::int64_t every = 1000;  ///< steps, 0: off
  std::optional<double> every_minutes;
  std::int64_t keep_last = 3;
  std::int64_t keep_every = 0;
  std::string resume = "auto";  ///< auto | never | must | PATH
  friend bool operator==(const CheckpointConfig&, const CheckpointConfig&) = default;
};

struct SignalsConfig {
  std::vector<std::string> stop = {"TERM", "INT"};
  std::vector<std::string> save = {"USR1"};
  friend bool operator==(const SignalsConfig&, const SignalsConfig&) = default;
};

struct SampleConfig {
  std::vector<std::string> prompts;  ///< empty: no samples
  std::int64_t tokens = 64;
  double temperature = 0.8;
  std::int64_t top_k = 50;
  friend bool operator==(const SampleConfig&, const SampleConfig&) = default;
};

struct EvalConfig {
  std::int64_t every = 250;
  std::int64_t tokens = 1048576;
  bool at_start = true;
  SampleConfig sample;
  friend bool operator==(const EvalConfig&, const EvalConfig&) = default;
};

struct GuardConfig {
  std::string on_nonfinite = "stop";  ///< stop | skip
  std::int64_t max_skips = 10;
  friend bool operator==(const GuardConfig&, const GuardConfig&) = default;
};

struct LogConfig {
  std::int64_t every = 1;
  std::string metrics = "metrics.jsonl";  ///< counts from out_dir
  std::int64_t gpu_every = 0;             ///< steps between rows about the GPU; 0: none
  std::optional<double> peak_tflops;      ///< empty: by the GPU's name
  friend bool operator==(const LogConfig&, const LogConfig&) = default;
};

struct Config {
  RunConfig run;
  ModelConfig model;
  AttentionConfig attention;
  DataConfig data;
  TokenizerConfig tokenizer;
  TrainConfig train;
  OptimConfig optim;
  ScheduleConfig schedule;
  PrecisionConfig precision;
  MemoryConfig memory;
  CheckpointConfig checkpoint;
  SignalsConfig signals;
  EvalConfig eval;
  GuardConfig guard;
  LogConfig log;
  friend bool operator==(const Config&, const Config&) = default;
};

/// The block arithmetic of a stage that compresses at `rate`.
inline NsaGeometry geometry_of(const AttentionConfig& attention, std::int64_t rate) {
  const auto narrow = [](std::int64_t value) { return static_cast<std::int32_t>(value); };
  return {.rate = narrow(rate),
          .overlap = narrow(attention.compress.overlap),
          .select_block = narrow(attention.select.block),
          .top_n = narrow(attention.select.top_n),
          .initial = narrow(attention.select.initial),
          .local = narrow(attention.select.local),
          .window = narrow(attention.window)};
}

/// Whether layer `layer` uses dense attention.
inline bool is_dense_layer(const AttentionConfig& attention, std::int64_t layer) {
  if (attention.kind == AttentionKind::kDense) return true;
  for (const std::int64_t dense : attention.dense_layers) {
    if (dense == layer) return true;
  }
  return false;
}

}  // namespace nsa
