#include "train/manifest.h"

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
  for (const DType dtype : {DType::kF32, DType::kF64}) {
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

RunState state_from(const Json& json) {
  RunState state;
  json.at("step").get_to(state.step);
  json.at("loader").at("epoch").get_to(state.loader.epoch);
  json.at("loader").at("cursor").get_to(state.loader.cursor);
  json.at("loader").at("dropped").get_to(state.loader.dropped);
  json.at("page").get_to(state.page);
  json.at("seed").get_to(state.seed);
  json.at("data").at("train").get_to(state.train_data);
  json.at("data").at("val").get_to(state.val_data);
  json.at("rate").get_to(state.rate);
  json.at("skipped").get_to(state.skipped);
  state.wall_seconds =
      json.value("wall_seconds", 0.0);  // nothing depends on it: it may be left out
  json.at("evaluation_pending").get_to(state.evaluation_pending);
  if (const Json& last = json.at("last_validation"); !last.is_null()) {
    state.last_validation = Validation{.step = last.at("step").get<std::int64_t>(),
                                       .loss = last.at("loss").get<double>(),
                                       .tokens = last.at("tokens").get<std::int64_t>()};
  }
  json.at("config_fingerprint").get_to(state.config_fingerprint);
  json.at("config").get_to(state.config_yaml);
  return state;
}

Manifest manifest_from(const Json& json) {
  Manifest manifest;
  json.at("library_version").get_to(manifest.library_version);
  json.at("layout").get_to(manifest.layout);
  manifest.dtype = dtype_named(json.at("dtype").get<std::string>());
  manifest.state = state_from(json.at("state"));
  for (const Json& file : json.at("files")) {
    manifest.files.push_back({.name = file.at("name").get<std::string>(),
                              .bytes = file.at("bytes").get<std::int64_t>(),
                              .checksum = file.at("crc32").get<std::uint32_t>()});
  }
  for (const Json& range : json.at("ranges")) {
    manifest.ranges.push_back({.bucket = range.at("bucket").get<std::string>(),
                               .begin = range.at("begin").get<std::int64_t>(),
                               .end = range.at("end").get<std::int64_t>(),
                               .file = range.at("file").get<std::string>(),
                               .master = range.at("master").get<std::int64_t>(),
                               .m = range.at("m").get<std::int64_t>(),
                               .v = range.at("v").get<std::int64_t>()});
  }
  for (const Json& parameter : json.at("parameters")) {
    manifest.parameters.push_back({.name = parameter.at("name").get<std::string>(),
                                   .shape = parameter.at("shape").get<std::vector<std::int64_t>>(),
                                   .updates = parameter.at("updates").get<std::int64_t>()});
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
    const auto format = json.at("format").get<std::int64_t>();
    if (format != Manifest::kFormat) {
      fail_checkpoint("manifest.json has format " + std::to_string(format) +
                      "; this version reads format " + std::to_string(Manifest::kFormat));
    }
    const auto stored = json.at(kChecksumKey).get<std::uint32_t>();
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
