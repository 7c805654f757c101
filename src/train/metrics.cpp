#include "train/metrics.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "config/parse.h"
#include "core/error.h"
#include "core/log.h"
#include "data/atomic_file.h"
#include "train/durable.h"

namespace nsa {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::ordered_json;

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text.data(), length};
}

Json number(double value) {
  if (!std::isfinite(value)) return nullptr;
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%.9g", value);
  return std::strtod(text.data(), nullptr);
}

Json number(std::optional<double> value) {
  return value ? number(*value) : Json(nullptr);
}

/// Plain text that reads as a number or as true or false is one.
Json scalar_to_json(const settings::Value& value) {
  if (value.quoted) return value.text;
  const Json read = Json::parse(value.text, nullptr, false);
  return read.is_number() || read.is_boolean() ? read : Json(value.text);
}

Json to_json(const settings::Value& value) {
  using Kind = settings::Value::Kind;
  if (value.kind == Kind::kNull) return nullptr;
  if (value.kind == Kind::kScalar) return scalar_to_json(value);
  Json json = value.kind == Kind::kMap ? Json::object() : Json::array();
  for (const settings::Value& item : value.items) {
    if (value.kind == Kind::kMap) {
      json[item.name] = to_json(item);
    } else {
      json.push_back(to_json(item));
    }
  }
  return json;
}

/// The step a line belongs to; none when it is no row of ours.
std::optional<std::int64_t> step_of_line(const std::string& line) {
  const Json row = Json::parse(line, nullptr, false);
  if (!row.is_object() || !row.contains("step") || !row["step"].is_number_integer()) {
    return std::nullopt;
  }
  return row["step"].get<std::int64_t>();
}

/// Keeps the rows of steps up to `step` in `path` and moves the others. Lines that are no rows of
/// ours move too, but a last line without its newline was torn by a kill and is dropped.
void cut_after(const fs::path& path, std::int64_t step) {
  const std::string text = read_file(path);
  std::string kept;
  std::string later;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t newline = text.find('\n', begin);
    if (newline == std::string::npos) break;
    const std::string line = text.substr(begin, newline - begin);
    const std::optional<std::int64_t> row_step = step_of_line(line);
    (row_step && *row_step <= step ? kept : later) += line + "\n";
    begin = newline + 1;
  }
  if (!later.empty()) replace_file(stale_name(path), later);
  if (kept.size() != text.size()) replace_file(path, kept);
}

}  // namespace

MetricsFile::MetricsFile(fs::path path, std::optional<std::int64_t> resumed_step,
                         double wall_before)
    : path_(std::move(path)), wall_zero_(now_seconds() - wall_before) {
  std::error_code error;
  if (path_.has_parent_path()) fs::create_directories(path_.parent_path(), error);
  const fs::file_status standing = fs::status(path_, error);
  if (fs::exists(standing) && !fs::is_regular_file(standing)) {
    fail_config("log.metrics is " + path_.string() +
                ", which is there and is no regular file; name a file, such as metrics.jsonl");
  }
  if (fs::exists(standing)) {
    if (resumed_step) {
      cut_after(path_, *resumed_step);
    } else {
      fs::rename(path_, stale_name(path_), error);
      if (error)
        fail_checkpoint("cannot move " + path_.string() + ": " +
                        write_advice(error.value(), "log.metrics"));
    }
  }
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file_ < 0) {
    fail_checkpoint("cannot write " + path_.string() + ": " + write_advice(errno, "log.metrics"));
  }
}

MetricsFile::~MetricsFile() {
  ::close(file_);
}

double MetricsFile::wall_seconds() const {
  return now_seconds() - wall_zero_;
}

void MetricsFile::start(std::int64_t step, const std::string& version, const std::string& device,
                        const std::string& resumed_from) {
  Json row = {{"type", "start"}, {"step", step}, {"version", version}, {"device", device}};
  row["resumed_from"] = resumed_from.empty() ? Json(nullptr) : Json(resumed_from);
  row["time"] = utc_now();
  write(row.dump());
}

void MetricsFile::config(std::int64_t step, const Config& resolved) {
  // A path may hold bytes that are no UTF-8.
  write(Json{{"type", "config"},
             {"step", step},
             {"fingerprint", config_fingerprint(resolved)},
             {"config", to_json(config_tree(resolved))}}
            .dump(-1, ' ', false, Json::error_handler_t::replace));
}

void MetricsFile::train(const TrainRow& row) {
  Json json = {{"type", "train"},
               {"step", row.step},
               {"tokens", row.tokens},
               {"epoch", row.epoch},
               {"loss", number(row.loss)},
               {"grad_norm", number(row.grad_norm)},
               {"lr", number(row.lr)},
               {"tok_s", number(row.tok_s)},
               {"mfu_model", number(row.mfu)},
               {"mem_gib", number(row.mem_gib)},
               {"data_wait", number(row.data_wait)}};
  if (row.nsa) {
    json["nsa"] = {{"rate", row.nsa->geometry.rate},
                   {"overlap", row.nsa->geometry.overlap},
                   {"top_n", row.nsa->geometry.top_n},
                   {"window", row.nsa->geometry.window},
                   {"density", number(row.nsa->density)}};
  } else {
    json["nsa"] = nullptr;
  }
  json["skipped"] = row.skipped;
  if (!std::isfinite(row.loss) || !std::isfinite(row.grad_norm)) json["nonfinite"] = true;
  json["wall_s"] = number(wall_seconds());
  json["time"] = utc_now();
  write(json.dump());
}

void MetricsFile::gpu(std::int64_t step, const std::optional<DeviceHealth>& health) {
  if (!health) return;
  write(Json{{"type", "gpu"},
             {"step", step},
             {"utilisation", number(health->utilisation)},
             {"power_w", number(health->power_w)},
             {"power_limit_w", number(health->power_limit_w)},
             {"temperature_c", number(health->temperature_c)},
             {"clock_mhz", number(health->clock_mhz)},
             {"throttle", health->throttle},
             {"time", utc_now()}}
            .dump());
}

void MetricsFile::val(const Validation& row, const std::vector<PositionBucket>& by_position) {
  Json json = {
      {"type", "val"}, {"step", row.step}, {"loss", number(row.loss)}, {"tokens", row.tokens}};
  Json buckets = Json::array();
  for (const PositionBucket& bucket : by_position) {
    buckets.push_back({{"from", bucket.from},
                       {"to", bucket.to},
                       {"loss", number(bucket.loss)},
                       {"tokens", bucket.tokens}});
  }
  json["by_position"] = std::move(buckets);
  write(json.dump());
}

void MetricsFile::event(std::int64_t step, const std::string& kind, const std::string& text) {
  write(Json{{"type", "event"}, {"step", step}, {"kind", kind}, {"text", text}, {"time", utc_now()}}
            .dump(-1, ' ', false, Json::error_handler_t::replace));
}

void MetricsFile::end(std::int64_t step, const std::string& status, int exit_code,
                      std::optional<double> val_loss, std::optional<double> unigram_nats) {
  write(Json{{"type", "end"},
             {"status", status},
             {"exit_code", exit_code},
             {"step", step},
             {"val_loss", number(val_loss)},
             {"unigram_nats", number(unigram_nats)}}
            .dump());
}

void MetricsFile::write(const std::string& line) {
  waiting_ += line;
  waiting_ += '\n';
  std::size_t written = 0;
  while (written < waiting_.size()) {
    const ssize_t now = ::write(file_, waiting_.data() + written, waiting_.size() - written);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) break;
    written += static_cast<std::size_t>(now);
  }
  const int reason = errno;
  // The next write goes on where this one stopped, be it inside a row.
  waiting_.erase(0, written);
  // A full disk must not end a run that can still train.
  if (!waiting_.empty() && !warned_) {
    log::warn("cannot write " + path_.string() + ": " + std::strerror(reason) +
              "; training goes on and rows wait in memory until there is room");
  }
  warned_ = !waiting_.empty();
}

}  // namespace nsa
