#include "golden/golden_case.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace nsa {
namespace {

using nlohmann::json;

/// The settings of a file, each checked where it is read.
class Settings {
 public:
  explicit Settings(const Safetensors& file) : path_(file.path()) {
    const auto format = file.metadata().find("format");
    if (format == file.metadata().end() || format->second != "nsa-golden-1") {
      fail_data(path_ + " is not a golden file: its format is " +
                (format == file.metadata().end() ? "not given" : "'" + format->second + "'") +
                ", not 'nsa-golden-1'");
    }
    const auto config = file.metadata().find("config");
    if (config != file.metadata().end()) {
      config_ = json::parse(config->second, nullptr, /*allow_exceptions=*/false);
    }
    if (!config_.is_object()) bad("config", "must be a JSON object");
  }

  [[noreturn]] void bad(const std::string& key, const std::string& wanted) const {
    fail_data(path_ + ": '" + key + "' of the golden settings " + wanted);
  }
  void require(bool ok, const std::string& key, const std::string& wanted) const {
    if (!ok) bad(key, wanted);
  }
  const json& at(const std::string& key) const {
    require(config_.contains(key), key, "is missing");
    return config_[key];
  }
  std::int64_t integer(const std::string& key, std::int64_t least) const {
    return integer(at(key), key, least);
  }
  std::int64_t integer(const json& value, const std::string& key, std::int64_t least) const {
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
    require(value.is_number_integer() && value.get<double>() >= static_cast<double>(least) &&
                value.get<double>() <= static_cast<double>(kMost),
            key, "must be a whole number of at least " + std::to_string(least));
    return value.get<std::int64_t>();
  }
  std::int32_t integer32(const std::string& key, std::int64_t least) const {
    return static_cast<std::int32_t>(integer(key, least));
  }
  double positive(const std::string& key) const {
    const json& value = at(key);
    require(value.is_number() && value.get<double>() > 0, key, "must be a positive number");
    return value.get<double>();
  }
  bool flag(const std::string& key) const {
    require(at(key).is_boolean(), key, "must be true or false");
    return at(key).get<bool>();
  }
  std::string text(const std::string& key) const {
    require(at(key).is_string(), key, "must be a string");
    return at(key).get<std::string>();
  }
  template <class Value>
  Value choice(const std::string& key, const std::map<std::string, Value>& values) const {
    const auto found = values.find(text(key));
    std::string names;
    for (const auto& [name, value] : values) names += (names.empty() ? "" : ", ") + name;
    require(found != values.end(), key, "must be one of " + names);
    return found->second;
  }

 private:
  std::string path_;
  json config_;
};

void read_documents(const Settings& settings, GoldenCase& golden) {
  const json& bounds = settings.at("cu_seqlens");
  settings.require(bounds.is_array() && bounds.size() >= 2, "cu_seqlens",
                   "must be a list of at least two bounds");
  for (const json& bound : bounds) {
    const std::int64_t last = golden.bounds.empty() ? 0 : golden.bounds.back();
    golden.bounds.push_back(static_cast<std::int32_t>(settings.integer(bound, "cu_seqlens", last)));
  }
  settings.require(golden.bounds.front() == 0, "cu_seqlens", "must start with 0");
  settings.require(golden.bounds.back() > 0, "cu_seqlens", "must hold at least one token");
  const std::vector<double> stored = golden.file.values("in.cu_seqlens");
  settings.require(std::equal(stored.begin(), stored.end(), golden.bounds.begin(),
                              golden.bounds.end(), [](double a, std::int32_t b) { return a == b; }),
                   "cu_seqlens", "must equal the tensor in.cu_seqlens");
}

/// Block length and stride of the compressed tokens, one pair a document.
void read_rates(const Settings& settings, GoldenCase& golden) {
  const json& rates = settings.at("rates");
  settings.require(rates.is_array() && rates.size() + 1 == golden.bounds.size(), "rates",
                   "must be a list with a pair for each document");
  golden.one_rate = std::all_of(rates.begin(), rates.end(),
                                [&](const json& pair) { return pair == rates.front(); });
  for (const json& pair : rates) {
    settings.require(pair.is_array() && pair.size() == 2, "rates", "must hold pairs");
    const std::int64_t block = settings.integer(pair[0], "rates", 1);
    const std::int64_t stride = settings.integer(pair[1], "rates", 1);
    settings.require(block % stride == 0 && golden.geometry.select_block % stride == 0 &&
                         block <= golden.geometry.select_block,
                     "rates",
                     "must have strides that divide the block and 'lp', and blocks no "
                     "longer than 'lp'");
    settings.require(stride > 1 || block == 1, "rates", "must have blocks of 1 at stride 1");
    golden.geometry.rate = static_cast<std::int32_t>(stride);
    golden.geometry.overlap = static_cast<std::int32_t>(block / stride);
  }
}

void read_geometry(const Settings& settings, GoldenCase& golden) {
  NsaGeometry& geometry = golden.geometry;
  geometry.select_block = settings.integer32("lp", 1);
  geometry.initial = settings.integer32("n_init", 0);
  geometry.local = settings.integer32("n_local", 1);
  geometry.top_n = settings.integer32("n", 1);
  geometry.window = settings.integer32("w", 1);
  settings.require(geometry.top_n >= geometry.initial + geometry.local, "n",
                   "must be at least n_init + n_local");
}

void read_compressor(const Settings& settings, GoldenCase& golden) {
  golden.phi = settings.choice<Phi>("phi", {{"mean", Phi::kMean},
                                            {"mean_mlp", Phi::kMeanMlp},
                                            {"pool_mlp", Phi::kPoolMlp},
                                            {"mlp_flat", Phi::kMlpFlat}});
  golden.compress_rope =
      settings.choice<CompressRope>("cmp_rope", {{"none", CompressRope::kNone},
                                                 {"after", CompressRope::kAfter},
                                                 {"before", CompressRope::kBefore}});
  golden.position =
      settings.choice<CompressPosition>("cmp_pos", {{"start", CompressPosition::kStart},
                                                    {"center", CompressPosition::kCenter},
                                                    {"end", CompressPosition::kEnd}});
  golden.bypass = settings.flag("rate1_bypass") && golden.geometry.rate == 1;
  golden.rope = {.rotary_dim = settings.integer("rope_dim", 0),
                 .base = settings.positive("rope_base")};
  settings.require(golden.rope.rotary_dim % 2 == 0 && golden.rope.rotary_dim <= golden.head_dim,
                   "rope_dim", "must be even and at most dqk");
}

using Shape = std::vector<std::int64_t>;

void need(const GoldenCase& golden, const std::string& name, const Shape& shape) {
  const SafetensorsEntry& entry = golden.file.entry(name);
  if (entry.shape == shape) return;
  const SafetensorsEntry wanted{.dtype = entry.dtype, .shape = shape};
  fail_data(golden.file.path() + ": tensor '" + name + "' is " + entry.describe() +
            ", but the settings of the file ask for " + wanted.describe());
}

/// An input and its gradient.
void need_pair(const GoldenCase& golden, const std::string& name, const Shape& shape) {
  need(golden, "in." + name, shape);
  need(golden, "grad." + name, shape);
}

/// The parameters of one compressor, whose hidden width and bins the tensors themselves tell.
void need_phi(const GoldenCase& golden, const std::string& which, std::int64_t dim) {
  if (golden.phi == Phi::kMean) return;
  const std::string prefix = which + ".";
  const std::int64_t block = golden.geometry.compress_block();
  const Shape w2 = golden.file.entry("in." + prefix + "w2").shape;
  const std::int64_t hidden = w2.size() == 2 ? w2[1] : 0;
  need_pair(golden, prefix + "w1", {hidden, golden.phi == Phi::kMlpFlat ? block * dim : dim});
  need_pair(golden, prefix + "b1", {hidden});
  need_pair(golden, prefix + "w2", {dim, hidden});
  if (golden.phi == Phi::kMlpFlat) need_pair(golden, prefix + "pe", {block, dim});
  if (golden.phi == Phi::kPoolMlp) {
    const Shape theta = golden.file.entry("in." + prefix + "theta").shape;
    need_pair(golden, prefix + "theta", {golden.kv_heads, theta.size() == 2 ? theta[1] : 0});
  }
}

void need_results(const GoldenCase& golden) {
  const Documents documents{.bounds = golden.bounds, .device_bounds = {}};
  const std::int64_t rows = compressed_rows(documents, golden.geometry);
  const std::int64_t tokens = golden.tokens();
  const std::int64_t blocks =
      golden.geometry.selection_blocks(static_cast<std::int32_t>(documents.longest()));
  need(golden, "mid.cu_cmp", {static_cast<std::int64_t>(golden.bounds.size())});
  for (const std::string group : {"mid.", "grad."}) {
    need(golden, group + "kt", {rows, golden.kv_heads, golden.head_dim});
    need(golden, group + "vt", {rows, golden.kv_heads, golden.v_dim});
    if (golden.compress_rope == CompressRope::kAfter) {
      need(golden, group + "kt_raw", {rows, golden.kv_heads, golden.head_dim});
    }
  }
  need(golden, "mid.score", {tokens, golden.kv_heads, blocks});
  need(golden, "mid.sel_idx", {tokens, golden.kv_heads, golden.geometry.top_n});
  need(golden, "mid.sel_gap", {tokens, golden.kv_heads});
  need(golden, "mid.gates", {tokens, golden.heads, 3});
  for (const std::string branch : {"cmp", "slc", "win"}) {
    need(golden, "out.o_" + branch, {tokens, golden.heads, golden.v_dim});
    need(golden, "out.lse_" + branch, {tokens, golden.heads});
  }
  need(golden, "out.out", {tokens, golden.heads, golden.v_dim});
}

void need_inputs(const GoldenCase& golden) {
  const std::int64_t tokens = golden.tokens();
  for (const ProjectionPart& part : projection_parts(golden)) {
    if (golden.is_layer()) {
      need_pair(golden, part.weight, {part.width(), golden.model_dim});
      need(golden, "mid." + part.name, {tokens, part.heads, part.dim});
    } else {
      need_pair(golden, part.name, {tokens, part.heads, part.dim});
    }
  }
  if (golden.is_layer()) {
    need_pair(golden, "x", {tokens, golden.model_dim});
    need_pair(golden, "b_g", {3 * golden.heads});
    need_pair(golden, "w_o", {golden.model_dim, golden.heads * golden.v_dim});
    need(golden, "in.d_y", {tokens, golden.model_dim});
    need(golden, "out.y", {tokens, golden.model_dim});
  } else {
    need(golden, "in.d_out", {tokens, golden.heads, golden.v_dim});
  }
  need_phi(golden, "phi_k", golden.head_dim);
  need_phi(golden, "phi_v", golden.v_dim);
}

}  // namespace

std::vector<ProjectionPart> projection_parts(const GoldenCase& golden) {
  std::vector<ProjectionPart> parts = {{"q", "w_q", golden.heads, golden.head_dim}};
  for (const std::string branch : {"cmp", "slc", "win"}) {
    parts.push_back({"k_" + branch, "w_k_" + branch, golden.kv_heads, golden.head_dim});
    parts.push_back({"v_" + branch, "w_v_" + branch, golden.kv_heads, golden.v_dim});
  }
  parts.push_back({"gate_logits", "w_g", golden.heads, 3});
  return parts;
}

GoldenCase read_golden_case(const std::string& path) {
  GoldenCase golden(path);
  const Settings settings(golden.file);
  golden.name = std::filesystem::path(path).stem().string();
  golden.heads = settings.integer("Hq", 1);
  golden.kv_heads = settings.integer("Hkv", 1);
  settings.require(golden.heads % golden.kv_heads == 0, "Hq", "must be a multiple of Hkv");
  golden.head_dim = settings.integer("dqk", 1);
  golden.v_dim = settings.integer("dv", 1);
  golden.model_dim = settings.integer("dm", 0);
  golden.scale = settings.positive("scale");
  golden.ties = settings.text("special").rfind("ties", 0) == 0;
  read_geometry(settings, golden);
  read_documents(settings, golden);
  read_rates(settings, golden);
  read_compressor(settings, golden);
  if (golden.one_rate) {
    need_inputs(golden);
    need_results(golden);
  }
  return golden;
}

}  // namespace nsa
