// The schema's sections precision, memory, parallel, checkpoint, signals, eval, guard and log.

#include "config/schema_builder.h"

namespace nsa::settings {
namespace {

void add_machine_keys(std::vector<Key>& keys) {
  const Section precision(
      keys, "precision.", [](auto& draft) -> auto& { return draft.config.precision; });
  precision.add("compute", &PrecisionConfig::compute,
                {.choices = {"auto", "fp32", "fp64", "bf16"}, .later = {"fp16"}, .shared = false},
                "Type of weights and activations. auto: bf16 on cuda, fp32 on the CPU.");
  keys.push_back(
      later_key("precision.master", {"fp32"}, "fp32", "Type of the optimiser's weights."));
  keys.push_back(
      later_key("precision.grad_accum", {"fp32"}, "fp32", "Type of the summed gradients."));
  precision.add(
      "optim_states", &PrecisionConfig::optim_states,
      {.choices = {"fp32", "bf16"}, .shared = false},
      "Type of AdamW's moments. bf16 is rounded at random, the same on every start: 4 bytes "
      "a parameter less.");

  const Section memory(
      keys, "memory.", [](auto& draft) -> auto& { return draft.config.memory; });
  memory.add("recompute", &MemoryConfig::recompute,
             {.choices = {"none", "selective", "full"}, .shared = false},
             "Activations that backward computes again; the same bits, less memory, more time.");
  memory.add("logits_chunks", &MemoryConfig::logits_chunks,
             {.min = 1, .max = kMaxInt32, .none = "auto", .shared = false},
             "Pieces in which logits and loss of a micro-batch are computed.");
  memory.add(
      "offload", &MemoryConfig::offload, {.choices = {"none", "optimizer"}, .shared = false},
      "What stands in host memory in place of a GPU's. optimizer: master weights and moments; "
      "the same bits, a slower update.");

  keys.push_back(
      later_key("parallel.ranks", {"auto", "1"}, "whole number, or auto", "Ranks of the run."));
  keys.push_back(later_key("parallel.zero", {"1"}, "whole number", "What ranks share out."));
  keys.push_back(later_key("parallel.backend", {"auto"}, "auto, thread, mpi or nccl",
                           "How ranks talk to each other."));
  keys.push_back(
      later_key("parallel.timeout_s", {"600"}, "number", "Seconds that a rank waits for others."));
  keys.push_back(later_key("parallel.overlap", {"true"}, "true or false",
                           "Reduce gradients while backward goes on."));
}

void add_checkpoint_keys(std::vector<Key>& keys) {
  const Section section(
      keys, "checkpoint.", [](auto& draft) -> auto& { return draft.config.checkpoint; });
  section.add("dir", &CheckpointConfig::dir, {.shared = false},
              "Folder of the checkpoints. Counts from out_dir. null: ckpt.");
  section.add("every", &CheckpointConfig::every,
              {.min = 0, .max = kMaxInt32, .shared = false, .unit = "steps"},
              "Save each so many steps; the last step is saved always. 0: off.");
  section.add("every_minutes", &CheckpointConfig::every_minutes,
              {.min = 0, .open = true, .minutes = true, .shared = false, .unit = "minutes"},
              "Save when so much time has passed since the last save. null: off.");
  section.add("keep_last", &CheckpointConfig::keep_last,
              {.min = 1, .max = kMaxInt32, .shared = false, .unit = "checkpoints"},
              "The newest checkpoints that stay on disk.");
  section.add("keep_every", &CheckpointConfig::keep_every,
              {.min = 0, .max = kMaxInt32, .shared = false, .unit = "steps"},
              "Checkpoints of multiples of this step stay for good. 0: off.");
  keys.push_back(later_key("checkpoint.async", {"false"}, "true or false",
                           "Write a checkpoint while training goes on."));
  section.add("resume", &CheckpointConfig::resume, {.none = "", .path = true, .shared = false},
              "auto: from the newest complete checkpoint if there is one; never: start anew; "
              "must: fail without one; or the path of a checkpoint.");
  keys.push_back(later_key("checkpoint.export_last", {"none"}, "none or hf",
                           "Export the weights at the end of the run."));

  const Section signals(
      keys, "signals.", [](auto& draft) -> auto& { return draft.config.signals; });
  const std::vector<std::string> names = {"TERM", "INT", "HUP", "QUIT", "USR1", "USR2"};
  signals.add("stop", &SignalsConfig::stop, {.choices = names, .shared = false},
              "Signals that finish the step, save and leave with code 75.");
  signals.add("save", &SignalsConfig::save, {.choices = names, .shared = false},
              "Signals that save and go on.");
}

void add_sample_keys(std::vector<Key>& keys) {
  const Section section(
      keys, "eval.sample.", [](auto& draft) -> auto& { return draft.config.eval.sample; });
  section.add("prompts", &SampleConfig::prompts, {.shared = false},
              "Texts that the model continues at each evaluation; also `sample: text` and "
              "`sample: [text, text]`. null: no samples.");
  section.add("tokens", &SampleConfig::tokens,
              {.min = 1, .max = kMaxInt32, .shared = false, .unit = "tokens"},
              "Length of a continuation.");
  section.add("temperature", &SampleConfig::temperature, {.min = 0, .shared = false},
              "Divides the logits. 0: always the likeliest token.");
  section.add("top_k", &SampleConfig::top_k,
              {.min = 0, .max = kMaxInt32, .shared = false, .unit = "tokens"},
              "Sample among the likeliest so many. 0: among all.");
}

}  // namespace

void add_run_keys(std::vector<Key>& keys) {
  add_machine_keys(keys);
  add_checkpoint_keys(keys);

  const Section eval(
      keys, "eval.", [](auto& draft) -> auto& { return draft.config.eval; });
  eval.add("every", &EvalConfig::every,
           {.min = 0, .max = kMaxInt32, .shared = false, .unit = "steps"},
           "Validation loss each so many steps, and after the last. 0: off.");
  eval.add("tokens", &EvalConfig::tokens,
           {.min = 1, .max = 1e15, .suffix = true, .shared = false, .unit = "tokens"},
           "Validation tokens of one evaluation, at most; always the same ones.");
  eval.add("at_start", &EvalConfig::at_start, {.shared = false},
           "Also before the first step; never at a resume.");
  add_sample_keys(keys);

  const Section guard(
      keys, "guard.", [](auto& draft) -> auto& { return draft.config.guard; });
  guard.add("on_nonfinite", &GuardConfig::on_nonfinite, {.choices = {"stop", "skip"}},
            "When loss or gradient is not finite: stop with code 5, or leave that update out.");
  guard.add("max_skips", &GuardConfig::max_skips, {.min = 0, .max = kMaxInt32, .unit = "steps"},
            "Updates left out in a row before the run stops.");
  keys.push_back(later_key("guard.loss_z", {"0"}, "number", "Skip losses above this z-score."));
  keys.push_back(later_key("guard.grad_z", {"0"}, "number", "Skip norms above this z-score."));
  keys.push_back(
      later_key("guard.window", {"128"}, "whole number", "Steps that the z-scores look at."));

  const Section log(
      keys, "log.", [](auto& draft) -> auto& { return draft.config.log; });
  log.add("every", &LogConfig::every,
          {.min = 0, .max = kMaxInt32, .shared = false, .unit = "steps"},
          "A progress line and a metrics row each so many steps. 0: off.");
  log.add("metrics", &LogConfig::metrics, {.none = "", .shared = false},
          "The metrics file. Counts from out_dir.");
  keys.push_back(
      later_key("log.tensorboard", {"false"}, "true or false", "Also write TensorBoard events."));
  log.add(
      "gpu_every", &LogConfig::gpu_every,
      {.min = 0, .max = kMaxInt32, .shared = false, .unit = "steps"},
      "A metrics row about the GPU (load, power, temperature, clocks and what lowers them) each "
      "so many steps. 0: off.");
  log.add(
      "peak_tflops", &LogConfig::peak_tflops,
      {.min = 0, .open = true, .none = "auto", .shared = false, .unit = "TFLOP/s"},
      "What model FLOPs utilisation is measured against. auto: the GPU's bf16 rate by its name.");
}

}  // namespace nsa::settings
