#pragma once

// What nsa_train does besides training.

#include <string>

#include "config/config.h"
#include "core/error.h"

namespace nsa {

/// --check-data: reads every token once and prints counts, the largest id, documents and
/// their lengths, dropped tokens and the unigram entropy. Throws Error as open_data and Loader do.
ExitCode check_data(const Config& config);

/// --eval-only: validation loss of a checkpoint, `checkpoint` or (empty) the newest of the run.
/// Throws Error (code 4) when there is none.
ExitCode evaluate_checkpoint(const Config& config, const std::string& checkpoint);

/// --verify-ckpt: holds one checkpoint, or all in a folder of them, against their manifests and
/// prints a line each. kCheckpoint when any is damaged or there is none.
ExitCode verify_checkpoints(const std::string& folder);

}  // namespace nsa
