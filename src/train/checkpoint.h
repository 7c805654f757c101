#pragma once

// One checkpoint: a folder step_00000017 with manifest.json, rank_00000.bin and
// config.resolved.yaml, there whole or not at all.

#include <cstdint>
#include <filesystem>
#include <string>

#include "core/device.h"
#include "params/store.h"
#include "train/manifest.h"
#include "train/run_state.h"

namespace nsa {

/// The resolved configuration, in run.out_dir and in each checkpoint.
constexpr const char* kResolvedConfig = "config.resolved.yaml";

/// "step_00000017": eight digits or more.
std::string checkpoint_name(std::int64_t step);
/// Bytes that one checkpoint takes, its manifest estimated.
std::int64_t checkpoint_bytes(const Layout& layout, DType master, DType moments);
std::int64_t checkpoint_bytes(const ParameterStore& store);

/// Writes `folder`/step_N: into a temporary folder beside it, flushed, then renamed. A folder of
/// that name is replaced. Returns its path. Throws Error (code 4) when anything cannot be written;
/// what stood there before still stands then.
std::filesystem::path save_checkpoint(const std::filesystem::path& folder, const RunState& state,
                                      const ParameterStore& store, Device& device);

/// Reads the manifest of a checkpoint and holds every file against it, sizes and checksums. Throws
/// Error (code 4) with the folder and what is damaged.
Manifest verify_checkpoint(const std::filesystem::path& checkpoint);

/// Throws Error (code 4), naming the first parameter that differs, when the checkpoint holds
/// another model than `store`.
void check_same_model(const Manifest& manifest, const ParameterStore& store);

/// Fills master, m, v, the update counts and the weights from a verified checkpoint of the same
/// model.
void load_checkpoint(const std::filesystem::path& checkpoint, const Manifest& manifest,
                     ParameterStore& store, Device& device);

}  // namespace nsa
