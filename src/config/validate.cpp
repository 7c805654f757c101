#include "config/validate.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "config/resolve.h"
#include "config/stages.h"
#include "core/error.h"
#include "core/format.h"

namespace nsa::settings {
namespace {

/// "where: key <problem>".
void require(bool ok, const Draft& draft, const std::string& key, const std::string& problem) {
  if (!ok) fail_config(fmt::format("{}: {} {}", draft.where(key), key, problem));
}

void check_model(const Draft& draft) {
  const ModelConfig& model = draft.config.model;
  require(
      model.heads % model.kv_heads == 0, draft, "model.kv_heads",
      fmt::format("is {}, which does not divide model.heads ({})", model.kv_heads, model.heads));
  require(model.rope_dim % 2 == 0, draft, draft.rope_dim ? "model.rope_dim" : "model.head_dim",
          fmt::format("is {}; rotated channels come in pairs, so model.rope_dim must be even",
                      model.rope_dim));
  require(
      model.rope_dim <= model.head_dim, draft, "model.rope_dim",
      fmt::format("is {}; it can be at most model.head_dim ({})", model.rope_dim, model.head_dim));
  std::set<std::int64_t> seen;
  for (const std::int64_t layer : draft.config.attention.dense_layers) {
    require(layer < model.layers, draft, "attention.dense_layers",
            fmt::format("names layer {}; model.layers is {}, so they are 0 to {}", layer,
                        model.layers, model.layers - 1));
    require(seen.insert(layer).second, draft, "attention.dense_layers",
            fmt::format("names layer {} twice", layer));
  }
}

/// The divisors of `number` next below and above `value`.
std::string nearest_divisors(std::int64_t number, std::int64_t value) {
  std::int64_t below = 1;
  for (std::int64_t i = std::min(value, number); i > 1; --i) {
    if (number % i == 0) {
      below = i;
      break;
    }
  }
  std::int64_t above = value + 1;
  while (above < number && number % above != 0) ++above;
  return above > number ? std::to_string(below) : fmt::format("{} or {}", below, above);
}

void check_rate(const Draft& draft, std::size_t index) {
  const AttentionConfig& attention = draft.config.attention;
  const NsaGeometry geometry = geometry_of(attention, draft.config.schedule.stages[index].rate);
  const Origin origin = origin_of(draft, index, "rate");
  if (geometry.select_block % geometry.rate != 0) {
    fail_config(fmt::format("{}: {} is {}; it must divide attention.select.block ({}). Try {}.",
                            origin.where, origin.name, geometry.rate, geometry.select_block,
                            nearest_divisors(geometry.select_block, geometry.rate)));
  }
  if (geometry.compress_block() > geometry.select_block) {
    fail_config(fmt::format(
        "{}: {} is {}; with attention.compress.overlap {} a compressed block has {} tokens, more "
        "than attention.select.block ({})",
        origin.where, origin.name, geometry.rate, geometry.overlap, geometry.compress_block(),
        geometry.select_block));
  }
}

/// The weights of mlp_flat have the length of a block in their shape.
void check_mlp_flat(const Draft& draft) {
  const CompressConfig& compress = draft.config.attention.compress;
  if (compress.phi != Phi::kMlpFlat) return;
  std::int64_t length = 0;
  const auto& stages = draft.config.schedule.stages;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const NsaGeometry geometry = geometry_of(draft.config.attention, stages[i].rate);
    const Origin origin = origin_of(draft, i, "rate");
    if (geometry.compress_block() == 1) {
      if (compress.rate1_bypass) continue;
      fail_config(
          fmt::format("{}: {} is 1; attention.compress.phi mlp_flat needs rate1_bypass there",
                      origin.where, origin.name));
    }
    if (length != 0 && length != geometry.compress_block()) {
      fail_config(fmt::format(
          "{}: {} is {}; attention.compress.phi mlp_flat has one block length (here {}) for the "
          "whole run. Take phi pool_mlp to change it.",
          origin.where, origin.name, geometry.rate, length));
    }
    length = geometry.compress_block();
  }
}

/// Sizes whose products leave 63 bits. In double, and rough: far above any machine, far below that.
void check_size(const Draft& draft) {
  constexpr double kMost = 1e15;
  const ModelConfig& model = draft.config.model;
  const CompressConfig& compress = draft.config.attention.compress;
  const auto number = [](std::int64_t value) { return static_cast<double>(value); };
  const double layers = number(model.layers);
  const double hidden = number(model.hidden);
  const double channels = number(model.heads) * number(model.head_dim + model.v_head_dim);
  const double block = number(compress.overlap) * number(draft.config.attention.select.block);
  const double phi =
      number(compress.bins) + (block + 1) * number(model.head_dim + model.v_head_dim) *
                                  number(compress.hidden_key + compress.hidden_value);
  const double parameters =
      number(model.vocab_size) * hidden +
      layers * (hidden * (4 * channels + 3 * number(model.ffn)) + number(model.kv_heads) * phi);
  require(
      parameters <= kMost, draft, "model.layers",
      fmt::format("is {} and gives the model about {:.1e} parameters; lower it, model.hidden "
                  "({}), model.heads ({}), model.head_dim ({}) or model.ffn ({})",
                  model.layers, parameters, model.hidden, model.heads, model.head_dim, model.ffn));
  const double blocks = number(model.kv_heads) * number(draft.config.attention.select.top_n);
  const double a_token =
      number(model.vocab_size) +
      layers * (8 * hidden + 6 * channels + 4 * number(model.ffn) + blocks +
                number(model.kv_heads) * number(compress.hidden_key + compress.hidden_value));
  const std::vector<StageConfig>& stages = draft.config.schedule.stages;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const double rows = number(stages[i].micro_batch.value_or(1)) * number(stages[i].seq_len);
    if (rows * a_token <= kMost) continue;
    const Origin origin = origin_of(draft, i, "seq_len");
    fail_config(
        fmt::format("{}: {} is {} and gives a micro-batch about {:.1e} activations; lower "
                    "it, micro_batch or the model's sizes",
                    origin.where, origin.name, stages[i].seq_len, rows * a_token));
  }
}

void check_attention(const Draft& draft) {
  const AttentionConfig& attention = draft.config.attention;
  const SelectConfig& select = attention.select;
  require(select.top_n >= select.initial + select.local, draft, "attention.select.top_n",
          fmt::format("is {}; it must hold the forced blocks, initial ({}) + local ({})",
                      select.top_n, select.initial, select.local));
  require(attention.compress.rope != CompressRope::kNone || draft.config.model.rope_dim == 0, draft,
          "attention.compress.rope",
          "is none while queries are rotated; take after, or set model.rope_dim to 0");
  for (std::size_t i = 0; i < draft.config.schedule.stages.size(); ++i) check_rate(draft, i);
  check_mlp_flat(draft);
}

void check_stage_batch(const Draft& draft, std::size_t index, std::int64_t page) {
  const StageConfig& stage = draft.config.schedule.stages[index];
  if (page % stage.seq_len != 0) {
    const Origin origin = origin_of(draft, index, "seq_len");
    fail_config(fmt::format(
        "{}: {} is {}; it must divide the largest seq_len of the schedule ({}). Try {}.",
        origin.where, origin.name, stage.seq_len, page, nearest_divisors(page, stage.seq_len)));
  }
  const auto& micro_batch = stage.micro_batch;
  const std::int64_t unit = micro_batch.value_or(1) * stage.seq_len;
  if (stage.tokens_per_step % unit != 0) {
    const Origin origin = origin_of(draft, index, "tokens_per_step");
    const std::string of_what =
        micro_batch ? fmt::format("micro_batch x seq_len ({} x {})", *micro_batch, stage.seq_len)
                    : fmt::format("seq_len ({})", stage.seq_len);
    fail_config(fmt::format("{}: {} is {}; it must be a multiple of {}{}. Try {}.", origin.where,
                            origin.name, stage.tokens_per_step, of_what,
                            index > 0 ? fmt::format(" in schedule.stages[{}]", index) : "",
                            nearest_multiples(stage.tokens_per_step, unit)));
  }
}

void check_stages(const Draft& draft) {
  const std::vector<StageConfig>& stages = draft.config.schedule.stages;
  if (stages.front().from.count != 0) {
    fail_config(fmt::format("{}: schedule.stages[0].from is {}; the first stage begins at 0",
                            origin_of(draft, 0, "from").where, stages.front().from.count));
  }
  std::int64_t page = 0;
  for (const StageConfig& stage : stages) page = std::max(page, stage.seq_len);
  for (std::size_t i = 0; i < stages.size(); ++i) check_stage_batch(draft, i, page);
  const std::vector<std::int64_t> first_steps = stage_first_steps(stages);
  for (std::size_t i = 1; i < stages.size(); ++i) {
    if (first_steps[i] > first_steps[i - 1]) continue;
    fail_config(fmt::format(
        "{}: schedule.stages[{}].from begins the stage at step {}, not after step {} of the stage "
        "before it; let the froms increase",
        origin_of(draft, i, "from").where, i, first_steps[i], first_steps[i - 1]));
  }
}

namespace fs = std::filesystem;

/// An absolute name for comparison, without "." and "..".
fs::path place_of(const fs::path& path) {
  std::error_code error;
  const fs::path whole = fs::absolute(path, error);
  const fs::path place = (error ? path : whole).lexically_normal();
  return place.has_filename() ? place : place.parent_path();
}

bool is_within(const fs::path& path, const fs::path& folder) {
  const auto [in_path, in_folder] =
      std::mismatch(path.begin(), path.end(), folder.begin(), folder.end());
  return in_folder == folder.end();
}

/// The files of a run must not stand in each other's way: a resume moves whole folders aside, and
/// a file that is written anew is lost.
void check_places(const Draft& draft) {
  const Config& config = draft.config;
  const fs::path out_dir = place_of(config.run.out_dir);
  const fs::path checkpoints = place_of(config.checkpoint.dir);
  const fs::path metrics = place_of(fs::path(config.run.out_dir) / config.log.metrics);
  require(!is_within(out_dir, checkpoints), draft, "checkpoint.dir",
          fmt::format("is {}, which holds run.out_dir; name a folder inside it, such as ckpt, or "
                      "one elsewhere",
                      checkpoints.string()));
  require(
      !is_within(metrics, checkpoints) && !is_within(checkpoints, metrics), draft, "log.metrics",
      fmt::format("is {} and checkpoint.dir is {}; name a file outside the checkpoints, such as "
                  "metrics.jsonl",
                  metrics.string(), checkpoints.string()));
  require(!is_within(out_dir, metrics), draft, "log.metrics",
          fmt::format("is {}, a folder that holds the run; name a file, such as metrics.jsonl",
                      metrics.string()));
  for (const char* own :
       {"lock", "config.resolved.yaml", "config.resolved.yaml.tmp", ".writable"}) {
    const fs::path taken = out_dir / own;
    const std::string problem = "is " + taken.string() + ", a file that the run itself writes; ";
    require(!is_within(metrics, taken), draft, "log.metrics",
            problem + "name another, such as metrics.jsonl");
    require(!is_within(checkpoints, taken), draft, "checkpoint.dir",
            problem + "name another, such as ckpt");
  }
}

bool is_device(const std::string& device) {
  if (device == "auto" || device == "cpu" || device == "cuda") return true;
  const std::string prefix = "cuda:";
  return device.rfind(prefix, 0) == 0 && device.size() > prefix.size() &&
         device.size() < prefix.size() + 4 &&
         device.find_first_not_of("0123456789", prefix.size()) == std::string::npos;
}

void check_run(const Draft& draft) {
  const Config& config = draft.config;
  require(is_device(config.run.device), draft, "run.device",
          "is " + (config.run.device.empty() ? "empty" : config.run.device) +
              "; it must be auto, cpu, cuda or cuda:N");
  require(!config.run.out_dir.empty(), draft, "run.out_dir", "is empty; it must be a folder");
  require(!config.log.metrics.empty(), draft, "log.metrics", "is empty; it must be a file name");
  require(!config.checkpoint.resume.empty(), draft, "checkpoint.resume",
          "is empty; it must be auto, never, must or a path");
  require(!config.data.train.empty(), draft, "data.train",
          "is not set; name the token shards, such as [data/train_*.bin]");
  const auto& eos = config.tokenizer.eos_id;
  require(!eos || *eos < config.model.vocab_size, draft, "tokenizer.eos_id",
          fmt::format("is {}; model.vocab_size is {}", eos.value_or(0), config.model.vocab_size));
  require(!eos || !config.tokenizer.model.empty(), draft, "tokenizer.eos_id",
          "is set without tokenizer.model, so nothing would read it; set both or neither");
  require(config.eval.sample.prompts.empty() || !config.tokenizer.model.empty(), draft,
          "eval.sample.prompts", "needs tokenizer.model, which is not set");
  require(config.schedule.lr.kind != LrKind::kWsd || config.schedule.lr.decay > 0, draft,
          "schedule.lr.decay", "is 0; wsd needs a part of the run to decay in, such as 0.2");
  for (const std::string& name : config.signals.save) {
    const auto& stop = config.signals.stop;
    require(std::find(stop.begin(), stop.end(), name) == stop.end(), draft, "signals.save",
            "names " + name + ", which is in signals.stop too");
  }
}

}  // namespace

void validate(const Draft& draft) {
  check_model(draft);
  check_size(draft);
  check_run(draft);
  check_places(draft);
  check_stages(draft);
  if (draft.config.attention.kind == AttentionKind::kNsa) check_attention(draft);
}

}  // namespace nsa::settings
