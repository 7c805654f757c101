#pragma once

// The folder of all checkpoints of a run: which there are, which stay, which one is resumed.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "config/config.h"
#include "train/manifest.h"

namespace nsa {

struct FoundCheckpoint {
  std::int64_t step = 0;
  std::filesystem::path path;
};

/// Folders named step_N, by number: step_9000 stands before step_10000.
std::vector<FoundCheckpoint> list_checkpoints(const std::filesystem::path& folder);

/// Removes what killed saves and removals left behind, and puts back a checkpoint that was being
/// replaced.
void clean_leftovers(const std::filesystem::path& folder);

/// After a good save of `saved_step`: keeps it, the newest `keep_last` in all, and multiples of
/// keep_every (0: none). A folder that cannot be removed is only a warning.
void retire_checkpoints(const std::filesystem::path& folder, const CheckpointConfig& config,
                        std::int64_t saved_step);

/// Moves checkpoints of later steps than `step` to <folder>.stale-N: a run that went back must not
/// find them at its next resume.
void set_aside_later(const std::filesystem::path& folder, std::int64_t step);

/// The checkpoint a run starts from.
struct ResumePoint {
  std::filesystem::path path;
  Manifest manifest;
};

/// Obeys checkpoint.resume. auto: the newest whole one; damaged ones are warned about and passed
/// over; none when there is no checkpoint at all. must: the same, but there has to be one. never:
/// none, after moving an existing folder to <folder>.stale-N. Anything else: that checkpoint, or
/// the newest in that folder of checkpoints. Throws Error (code 4) when there is none where one is
/// needed, and when all are damaged.
std::optional<ResumePoint> find_resume_point(const CheckpointConfig& config);
/// The same for auto, must and a path, without touching anything on the disk.
std::optional<ResumePoint> read_resume_point(const CheckpointConfig& config);

/// Throws Error (code 4) when there is no room for one checkpoint of `bytes`; warns when there is
/// none for the keep_last + 1 that stand there at the same time.
void check_free_space(const CheckpointConfig& config, std::int64_t bytes);

}  // namespace nsa
