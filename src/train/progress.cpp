#include "train/progress.h"

#include <cmath>

#include "core/format.h"

namespace nsa {

std::string duration_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole >= 3600) return fmt::format("{}h{:02}", whole / 3600, whole % 3600 / 60);
  if (whole >= 60) return fmt::format("{}m{:02}", whole / 60, whole % 60);
  return fmt::format("{}s", whole);
}

std::string rate_text(double per_second) {
  if (per_second >= 1e6) return fmt::format("{:.2f}M", per_second / 1e6);
  if (per_second >= 1e5) return fmt::format("{:.0f}k", per_second / 1e3);
  if (per_second >= 1e3) return fmt::format("{:.1f}k", per_second / 1e3);
  return fmt::format("{:.0f}", per_second);
}

std::string progress_line(const Progress& progress) {
  const TrainRow& row = progress.row;
  const std::string total = std::to_string(progress.steps);
  std::string line =
      fmt::format("step {:>{}}/{}  loss {:.4f}", row.step, total.size() + 1, total, row.loss);
  if (progress.val_loss) line += fmt::format("  val {:.4f}", *progress.val_loss);
  line +=
      fmt::format("  gnorm {:.2f}  lr {:.1e}  {} tok/s  {:.2f} GiB  data {:.1f}%", row.grad_norm,
                  row.lr, rate_text(row.tok_s), row.mem_gib, 100 * row.data_wait);
  if (row.mfu) line += fmt::format("  mfu {:.1f}%", 100 * *row.mfu);
  if (row.nsa) {
    line += fmt::format("  nsa r{} n{} w{}", row.nsa->geometry.rate, row.nsa->geometry.top_n,
                        row.nsa->geometry.window);
  }
  if (row.skipped > 0) line += fmt::format("  skipped {}", row.skipped);
  if (progress.seconds_left) line += "  eta " + duration_text(*progress.seconds_left);
  return line;
}

}  // namespace nsa
