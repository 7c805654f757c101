#pragma once

// MetricsFile: metrics.jsonl, one compact JSON object a line, flushed at each write.
//
// Numbers are rounded to 9 significant digits, so that equal runs give equal bytes; what is not
// finite becomes null. Rows that a full disk does not take wait in memory: each later write tries
// them again, in their order, so that a row is there once or, as long as there is no room, not yet.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/device.h"
#include "ops/nsa_geometry.h"
#include "train/position_loss.h"
#include "train/run_state.h"

namespace nsa {

/// What the NSA layers of a step looked like.
struct NsaRow {
  NsaGeometry geometry;
  double density = 0;  ///< pairs over dense causal pairs (train/flops.h)
};

struct TrainRow {
  std::int64_t step = 0;    ///< finished updates, this one included
  std::int64_t tokens = 0;  ///< of all steps so far
  std::int64_t epoch = 0;
  double loss = 0;
  double grad_norm = 0;
  double lr = 0;
  double tok_s = 0;
  std::optional<double> mfu = {};  ///< model FLOPs utilisation; none where no peak is known
  double mem_gib = 0;              ///< largest use of device memory so far; a GPU's: of all on it
  double data_wait = 0;            ///< share of the time that went into reading data
  std::optional<NsaRow> nsa;       ///< none in a dense model
  std::int64_t skipped = 0;        ///< updates left out so far
};

class MetricsFile {
 public:
  /// A new run: an existing file moves to <stem>.stale-N.jsonl.
  /// A resumed one (`resumed_step`): rows of later steps move there, a torn last line is dropped.
  /// `wall_before`: seconds that the run took before this start; wall_s goes on from there.
  /// Throws Error (code 4) when the file cannot be written.
  MetricsFile(std::filesystem::path path, std::optional<std::int64_t> resumed_step,
              double wall_before = 0);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  /// Seconds that the run took so far, over all its starts.
  double wall_seconds() const;

  void start(std::int64_t step, const std::string& version, const std::string& device,
             const std::string& resumed_from);
  /// `resolved` as one object of sections; its values are those of print_config.
  void config(std::int64_t step, const Config& resolved);
  void train(const TrainRow& row);
  /// What the device's driver tells, as far as it tells; nothing is written where it tells nothing.
  void gpu(std::int64_t step, const std::optional<DeviceHealth>& health);
  void val(const Validation& row, const std::vector<PositionBucket>& by_position);
  /// kind: memory | stage | save | save_failed | signal | skip | nonfinite | sample
  void event(std::int64_t step, const std::string& kind, const std::string& text);
  void end(std::int64_t step, const std::string& status, int exit_code,
           std::optional<double> val_loss, std::optional<double> unigram_nats);

 private:
  void write(const std::string& line);

  std::filesystem::path path_;
  int file_ = -1;
  std::string waiting_;   ///< what could not be written yet
  bool warned_ = false;   ///< of the present shortage
  double wall_zero_ = 0;  ///< on a steady clock, when the run would have begun without a break
};

}  // namespace nsa
