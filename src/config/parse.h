#pragma once

// The door to config/: YAML and overrides in, Config out; and back.

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "config/value.h"

namespace nsa {

/// Reads `yaml_path`, then the preset that is named last, then the keys of the file, then
/// `overrides` ("a.b=c", c in YAML, the last one wins; one of train.steps, epochs and tokens
/// replaces the others), and resolves and checks the whole. Paths become absolute: those of the
/// file count from its folder, those of overrides from the working directory; run.out_dir stays as
/// written. Throws Error (code 2) with "path:line:column: ..." (from 1) or "override N: ...".
/// What is legal but doubtful goes to `warnings` (may be null).
Config parse_config(const std::string& yaml_path, const std::vector<std::string>& overrides,
                    std::vector<std::string>* warnings);

/// Every key with its resolved value, as YAML: parse_config makes the same Config of it, from any
/// folder.
std::string print_config(const Config& config);

/// The same as a tree of sections, keys and values: a list of stages is a list of maps.
settings::Value config_tree(const Config& config);

/// A checksum of what ranks of a run must agree on: all keys whose "shared" column in
/// docs/config.md says yes. Names, folders, paths, device, micro_batch, precision, memory, limits,
/// checkpoints, evaluation and logging are not part of it.
std::uint32_t config_fingerprint(const Config& config);

/// One line for each key that differs: "optim.lr: 0.001 -> 0.0006", in the schema's order.
std::vector<std::string> config_diff(const Config& before, const Config& after);

/// docs/config.md: every key with its type, default, unit and meaning, written from the schema.
std::string config_reference();

}  // namespace nsa
