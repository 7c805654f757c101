#include "train/checkpoint_folder.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "core/error.h"
#include "core/format.h"
#include "core/log.h"
#include "data/atomic_file.h"
#include "train/checkpoint.h"
#include "train/durable.h"

namespace nsa {
namespace fs = std::filesystem;
namespace {

constexpr const char* kPrefix = "step_";
constexpr const char* kGone = ".gone";

std::optional<std::int64_t> step_of(const std::string& name) {
  if (name.rfind(kPrefix, 0) != 0) return std::nullopt;
  std::int64_t step = 0;
  const char* begin = name.data() + std::string(kPrefix).size();
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(begin, end, step);
  if (error != std::errc{} || stop != end || step < 0) return std::nullopt;
  return step;
}

void remove_or_warn(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) log::warn("cannot remove " + path.string() + ": " + error.message());
}

/// Under another name first: a kill in the middle must not leave a damaged checkpoint under its
/// own.
void remove_checkpoint(const fs::path& path) {
  const fs::path gone = path.string() + kGone;
  std::error_code error;
  fs::remove_all(gone, error);
  fs::rename(path, gone, error);
  remove_or_warn(error ? path : gone);
}

std::optional<ResumePoint> newest_whole(const fs::path& folder) {
  std::vector<FoundCheckpoint> found = list_checkpoints(folder);
  std::reverse(found.begin(), found.end());
  for (const FoundCheckpoint& checkpoint : found) {
    try {
      return ResumePoint{.path = checkpoint.path, .manifest = verify_checkpoint(checkpoint.path)};
    } catch (const Error& error) {
      log::warn(std::string("passing over a damaged checkpoint: ") + error.what());
    }
  }
  if (!found.empty()) {
    fail_checkpoint(fmt::format(
        "all {} checkpoints in {} are damaged; --resume never starts again from step 0 and moves "
        "them aside",
        found.size(), folder.string()));
  }
  return std::nullopt;
}

ResumePoint named(fs::path path) {
  if (!path.has_filename()) path = path.parent_path();  // "ckpt/step_00000010/"
  std::error_code error;
  if (!fs::exists(path / "manifest.json", error) && !list_checkpoints(path).empty()) {
    return *newest_whole(path);
  }
  return {.path = path, .manifest = verify_checkpoint(path)};
}

}  // namespace

std::vector<FoundCheckpoint> list_checkpoints(const fs::path& folder) {
  std::vector<FoundCheckpoint> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const auto step = step_of(entry.path().filename().string());
    if (step && entry.is_directory(error)) found.push_back({.step = *step, .path = entry.path()});
  }
  std::sort(found.begin(), found.end(),
            [](const FoundCheckpoint& a, const FoundCheckpoint& b) { return a.step < b.step; });
  return found;
}

void clean_leftovers(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    paths.push_back(entry.path());
  }
  for (const fs::path& path : paths) {
    if (!step_of(path.stem().string())) continue;
    if (path.extension() == ".tmp" || path.extension() == kGone) remove_or_warn(path);
    if (path.extension() != ".old") continue;
    fs::path target = path;
    target.replace_extension();
    if (fs::exists(target, error)) {
      remove_or_warn(path);
    } else {
      fs::rename(path, target, error);
    }
  }
}

void retire_checkpoints(const fs::path& folder, const CheckpointConfig& config,
                        std::int64_t saved_step) {
  const std::vector<FoundCheckpoint> found = list_checkpoints(folder);
  std::int64_t kept = 0;
  for (auto checkpoint = found.rbegin(); checkpoint != found.rend(); ++checkpoint) {
    const bool exempt = config.keep_every > 0 && checkpoint->step % config.keep_every == 0;
    if (checkpoint->step == saved_step || kept < config.keep_last) {
      ++kept;
    } else if (!exempt) {
      remove_checkpoint(checkpoint->path);
    }
  }
}

void set_aside_later(const fs::path& folder, std::int64_t step) {
  std::vector<FoundCheckpoint> later = list_checkpoints(folder);
  std::erase_if(later, [step](const FoundCheckpoint& found) { return found.step <= step; });
  if (later.empty()) return;
  const fs::path aside = stale_name(folder);
  std::error_code error;
  fs::create_directories(aside, error);
  for (const FoundCheckpoint& found : later) {
    if (!error) fs::rename(found.path, aside / found.path.filename(), error);
  }
  if (error)
    fail_checkpoint("cannot move later checkpoints to " + aside.string() + ": " +
                    write_advice(error.value(), kRunPlaces));
  log::warn(fmt::format("{} checkpoint(s) after step {} moved to {}", later.size(), step,
                        aside.string()));
}

std::optional<ResumePoint> find_resume_point(const CheckpointConfig& config) {
  const fs::path folder = config.dir;
  if (config.resume == "never") {
    std::error_code error;
    if (fs::exists(fs::symlink_status(folder, error))) {
      const fs::path aside = stale_name(folder);
      fs::rename(folder, aside, error);
      if (error)
        fail_checkpoint("cannot move " + folder.string() + ": " +
                        write_advice(error.value(), kRunPlaces));
      log::info("resume: never; moved " + folder.string() + " to " + aside.string());
    }
    return std::nullopt;
  }
  clean_leftovers(folder);
  return read_resume_point(config);
}

std::optional<ResumePoint> read_resume_point(const CheckpointConfig& config) {
  if (config.resume != "auto" && config.resume != "must") return named(config.resume);
  std::optional<ResumePoint> point = newest_whole(config.dir);
  if (!point && config.resume == "must") {
    fail_checkpoint("a checkpoint is needed (resume: must), but there is none in " + config.dir +
                    "; name another folder with --resume PATH, or start with --resume auto");
  }
  return point;
}

void check_free_space(const CheckpointConfig& config, std::int64_t bytes) {
  constexpr double kMiB = 1024.0 * 1024.0;
  const std::int64_t free = free_bytes(config.dir);
  const std::string have =
      fmt::format("{:.1f} MiB are free in {}, and a checkpoint takes {:.1f} MiB",
                  static_cast<double>(free) / kMiB, config.dir, static_cast<double>(bytes) / kMiB);
  if (free < bytes) fail_checkpoint(have + "; make room or set checkpoint.dir");
  const auto standing = static_cast<std::int64_t>(list_checkpoints(config.dir).size());
  const std::int64_t more = config.keep_last + 1 - standing;
  // In double: the product may leave int64 for an absurd keep_last.
  if (static_cast<double>(free) < static_cast<double>(more) * static_cast<double>(bytes)) {
    log::warn(fmt::format("{}; checkpoint.keep_last = {} needs room for {} more", have,
                          config.keep_last, more));
  }
}

}  // namespace nsa
