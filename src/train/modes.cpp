#include "train/modes.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include "core/format.h"
#include "core/log.h"
#include "data/loader.h"
#include "train/checkpoint.h"
#include "train/checkpoint_folder.h"
#include "train/evaluator.h"
#include "train/run_data.h"
#include "train/start_report.h"
#include "train/workshop.h"

namespace nsa {
namespace fs = std::filesystem;
namespace {

void print_set(const char* name, const TokenDataset& data, const TokenStatistics& found) {
  const std::string documents = found.documents > 0 ? grouped(found.documents) : "unknown";
  const std::string empty =
      found.empty_documents == 0
          ? ""
          : fmt::format(" (and {} without tokens, left out)", grouped(found.empty_documents));
  log::info(
      fmt::format("{}: {} tokens in {} shard(s), {} documents{}, largest id {}, unigram "
                  "entropy {:.9g} nats/token",
                  name, grouped(found.tokens), data.shards(), documents, empty, found.largest_id,
                  found.unigram_entropy));
  if (found.documents == 0) return;
  const DocumentLengths& lengths = found.lengths;
  log::info(fmt::format("{}: documents of {} to {} tokens, median {}, mean {:.1f}, 99 % at most {}",
                        name, grouped(lengths.shortest), grouped(lengths.longest),
                        grouped(lengths.median), lengths.mean, grouped(lengths.p99)));
}

}  // namespace

ExitCode check_data(const Config& config) {
  Config checked = config;
  checked.data.check_tokens = true;
  const RunData data = open_data(checked);
  const std::int64_t page = largest_seq_len(config);
  const std::unique_ptr<Device> device = make_cpu_device();
  // Its constructor is the check that there is a page at all.
  const Loader loader(data.train,
                      {.page = page, .doc_mask = config.data.doc_mask, .max_rows = page}, *device);
  print_set("train", data.train, *data.train_found);
  log::info(
      fmt::format("train: an epoch is {} pages of {} tokens; {} tokens at the end are dropped",
                  grouped(loader.pages_per_epoch()), page, loader.tail_tokens()));
  if (data.val) print_set("val", *data.val, *data.val_found);
  return ExitCode::kDone;
}

ExitCode evaluate_checkpoint(const Config& config, const std::string& checkpoint) {
  Workshop shop(config);
  if (!shop.data.val) fail_config("--eval-only needs validation data; set data.val");
  CheckpointConfig wanted = shop.config.checkpoint;
  wanted.resume = checkpoint.empty() ? "must" : checkpoint;
  const std::optional<ResumePoint> point = read_resume_point(wanted);
  check_same_model(point->manifest, shop.store);
  load_checkpoint(point->path, point->manifest, shop.store, *shop.backend.device);
  const std::int64_t step = point->manifest.state.step;
  const std::int64_t last = std::clamp<std::int64_t>(step - 1, 0, shop.schedule.steps() - 1);
  Evaluator evaluator(shop);
  const auto found = evaluator.evaluate(step, shop.schedule.at(last), [] { return false; });
  log::info(fmt::format("{}: val loss {:.9g} over {} tokens, unigram entropy {:.9g} nats/token",
                        point->path.string(), found->validation.loss, found->validation.tokens,
                        *shop.data.unigram_nats()));
  for (const PositionBucket& bucket : found->by_position) {
    log::info(fmt::format("  positions {} to {}: loss {:.6g} over {} tokens", bucket.from,
                          bucket.to - 1, bucket.loss, bucket.tokens));
  }
  return ExitCode::kDone;
}

ExitCode verify_checkpoints(const std::string& folder) {
  std::vector<fs::path> paths;
  std::error_code unreadable;
  if (fs::exists(fs::path(folder) / "manifest.json", unreadable)) {
    paths.emplace_back(folder);
  } else {
    for (const FoundCheckpoint& found : list_checkpoints(folder)) paths.push_back(found.path);
  }
  if (paths.empty())
    fail_checkpoint("there is no checkpoint in " + folder +
                    "; name a checkpoint, or the folder that holds some");
  std::int64_t damaged = 0;
  for (const fs::path& path : paths) {
    try {
      const Manifest manifest = verify_checkpoint(path);
      log::info(fmt::format("good     {} (step {}, {} file(s))", path.string(), manifest.state.step,
                            manifest.files.size()));
    } catch (const Error& error) {
      ++damaged;
      log::info(std::string("damaged  ") + error.what());
    }
  }
  if (damaged > 0) {
    fail_checkpoint(
        fmt::format("{} of {} checkpoints are damaged; restore them from copies, or remove them",
                    damaged, paths.size()));
  }
  return ExitCode::kDone;
}

}  // namespace nsa
