#include "train/manifest.h"

#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/checksum.h"
#include "core/error.h"

namespace nsa {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kChecksumKey = "manifest_crc32";

std::uint32_t checksum_of(const Json& json) {
  const std::string text = json.dump();
  return crc32(0, text.data(), static_cast<std::int64_t>(text.size()));
}

DType dtype_named(const std::string& name) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
    if (name == name_of(dtype)) return dtype;
  }
  fail_checkpoint("unknown element type '" + name + "'");
}

/// Json::dump calls itself for each level, so that text of another origin could exhaust the stack.
bool refuse_depth(int depth, Json::parse_event_t /*event*/, Json& /*value*/) {
  constexpr int kDeepest = 16;  // our own texts have 5 levels
  if (depth > kDeepest) {
    fail_checkpoint("manifest.json is nested deeper than " + std::to_string(kDeepest) + " levels");
  }
  return true;
}

Json json_of(const RunState& state) {
  Json json;
  json["step"] = state.step;
  json["loader"] = {{"epoch", state.loader.epoch},
                    {"cursor", state.loader.cursor},
                    {"dropped", state.loader.dropped}};
  json["page"] = state.page;
  json["seed"] = state.seed;
  json["data"] = {{"train", state.train_data}, {"val", state.val_data}};
  json["rate"] = state.rate;
  json["skipped"] = state.skipped;
  json["wall_seconds"] = state.wall_seconds;
  json["evaluation_pending"] = state.evaluation_pending;
  if (state.last_validation) {
    json["last_validation"] = {{"step", state.last_validation->step},
                               {"loss", state.last_validation->loss},
                               {"tokens", state.last_validation->tokens}};
  } else {
    json["last_validation"] = nullptr;
  }
  json["config_fingerprint"] = state.config_fingerprint;
  json["config"] = state.config_yaml;
  return json;
}

/// The whole number that is called `name`. nlohmann's own conversions would cut off a fraction,
/// wrap around what the type cannot hold, and are undefined for a large one with an exponent.
template <class T>
T whole(const Json& value, const char* name) {
  const bool fits = value.is_number_unsigned()
                        ? std::in_range<T>(value.get<std::uint64_t>())
                        : value.is_number_integer() && std::in_range<T>(value.get<std::int64_t>());
  if (fits) return value.get<T>();
  fail_checkpoint(std::string("manifest.json has ") +
                  (value.is_number() ? value.dump() : value.type_name()) + " as " + name +
                  ", wanted a whole number from " + std::to_string(std::numeric_limits<T>::min()) +
                  " to " + std::to_string(std::numeric_limits<T>::max()));
}

template <class T>
void read_whole(const Json& object, const char* key, T& into) {
  into = whole<T>(object.at(key), key);
}

std::vector<std::int64_t> shape_from(const Json& extents) {
  if (!extents.is_array()) fail_checkpoint("manifest.json has a shape that is no list");
  std::vector<std::int64_t> shape;
  for (const Json& extent : extents) shape.push_back(whole<std::int64_t>(extent, "an extent"));
  return shape;
}

RunState state_from(const Json& json) {
  RunState state;
  read_whole(json, "step", state.step);
  read_whole(json.at("loader"), "epoch", state.loader.epoch);
  read_whole(json.at("loader"), "cursor", state.loader.cursor);
  read_whole(json.at("loader"), "dropped", state.loader.dropped);
  read_whole(json, "page", state.page);
  read_whole(json, "seed", state.seed);
  read_whole(json.at("data"), "train", state.train_data);
  read_whole(json.at("data"), "val", state.val_data);
  read_whole(json, "rate", state.rate);
  read_whole(json, "skipped", state.skipped);
  state.wall_seconds =
      json.value("wall_seconds", 0.0);  // nothing depends on it: it may be left out
  json.at("evaluation_pending").get_to(state.evaluation_pending);
  if (const Json& last = json.at("last_validation"); !last.is_null()) {
    state.last_validation = Validation{.step = whole<std::int64_t>(last.at("step"), "step"),
                                       .loss = last.at("loss").get<double>(),
                                       .tokens = whole<std::int64_t>(last.at("tokens"), "tokens")};
  }
  read_whole(json, "config_fingerprint", state.config_fingerprint);
  json.at("config").get_to(state.config_yaml);
  return state;
}

Manifest manifest_from(const Json& json) {
  Manifest manifest;
  json.at("library_version").get_to(manifest.library_version);
  read_whole(json, "layout", manifest.layout);
  manifest.dtype = dtype_named(json.at("dtype").get<std::string>());
  // Older checkpoints have moments of the masters' type and do not say so.
  manifest.moments = json.contains("moments") ? dtype_named(json.at("moments").get<std::string>())
                                              : manifest.dtype;
  manifest.state = state_from(json.at("state"));
  for (const Json& file : json.at("files")) {
    manifest.files.push_back({.name = file.at("name").get<std::string>(),
                              .bytes = whole<std::int64_t>(file.at("bytes"), "bytes"),
                              .checksum = whole<std::uint32_t>(file.at("crc32"), "crc32")});
  }
  for (const Json& range : json.at("ranges")) {
    manifest.ranges.push_back({.bucket = range.at("bucket").get<std::string>(),
                               .begin = whole<std::int64_t>(range.at("begin"), "begin"),
                               .end = whole<std::int64_t>(range.at("end"), "end"),
                               .file = range.at("file").get<std::string>(),
                               .master = whole<std::int64_t>(range.at("master"), "master"),
                               .m = whole<std::int64_t>(range.at("m"), "m"),
                               .v = whole<std::int64_t>(range.at("v"), "v")});
  }
  for (const Json& parameter : json.at("parameters")) {
    manifest.parameters.push_back(
        {.name = parameter.at("name").get<std::string>(),
         .shape = shape_from(parameter.at("shape")),
         .updates = whole<std::int64_t>(parameter.at("updates"), "updates")});
  }
  return manifest;
}

}  // namespace

std::string to_json(const Manifest& manifest) {
  Json json;
  json["format"] = Manifest::kFormat;
  json["library_version"] = manifest.library_version;
  json["layout"] = manifest.layout;
  json["dtype"] = name_of(manifest.dtype);
  json["moments"] = name_of(manifest.moments);
  json["state"] = json_of(manifest.state);
  json["files"] = Json::array();
  for (const ManifestFile& file : manifest.files) {
    json["files"].push_back({{"name", file.name}, {"bytes", file.bytes}, {"crc32", file.checksum}});
  }
  json["ranges"] = Json::array();
  for (const ManifestRange& range : manifest.ranges) {
    json["ranges"].push_back({{"bucket", range.bucket},
                              {"begin", range.begin},
                              {"end", range.end},
                              {"file", range.file},
                              {"master", range.master},
                              {"m", range.m},
                              {"v", range.v}});
  }
  json["parameters"] = Json::array();
  for (const ManifestParameter& parameter : manifest.parameters) {
    json["parameters"].push_back(
        {{"name", parameter.name}, {"shape", parameter.shape}, {"updates", parameter.updates}});
  }
  json[kChecksumKey] = checksum_of(json);
  return json.dump(1) + "\n";
}

Manifest parse_manifest(const std::string& text) {
  try {
    Json json = Json::parse(text, refuse_depth);
    const auto format = whole<std::int64_t>(json.at("format"), "format");
    if (format != Manifest::kFormat) {
      fail_checkpoint("manifest.json has format " + std::to_string(format) +
                      ", and this version reads format " + std::to_string(Manifest::kFormat));
    }
    const auto stored = whole<std::uint32_t>(json.at(kChecksumKey), kChecksumKey);
    json.erase(kChecksumKey);
    if (checksum_of(json) != stored) {
      fail_checkpoint("manifest.json does not match its own checksum");
    }
    return manifest_from(json);
  } catch (const nlohmann::json::exception& error) {
    fail_checkpoint("manifest.json is not readable (" + std::string(error.what()) + ")");
  }
}

}  // namespace nsa
