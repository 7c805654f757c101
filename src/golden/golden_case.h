#pragma once

// One golden file: inputs and expected results of an NSA operator or layer, with the settings they
// were made with (tests/golden/README.md describes the format).

#include <cstdint>
#include <string>
#include <vector>

#include "core/batch.h"
#include "core/safetensors.h"
#include "ops/nsa_compress.h"
#include "ops/nsa_geometry.h"
#include "ops/rope_spec.h"

namespace nsa {

/// When the keys of the compressed branch are rotated, seen from phi.
enum class CompressRope : std::uint8_t { kNone, kAfter, kBefore };

struct GoldenCase {
  explicit GoldenCase(const std::string& path) : file(path) {}

  Safetensors file;
  std::string name;  ///< of the file, without folder and suffix
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0, v_dim = 0;
  std::int64_t model_dim = 0;  ///< 0: the operator alone; else a whole layer of this width
  NsaGeometry geometry;        ///< meaningful where one_rate
  bool one_rate = true;        ///< false: the documents differ in rate, which we do not offer
  bool ties = false;           ///< made to have equal scores
  Phi phi = Phi::kMean;
  bool bypass = false;  ///< rate 1 and the identity in place of phi
  CompressRope compress_rope = CompressRope::kNone;
  CompressPosition position = CompressPosition::kCenter;
  RopeSpec rope;
  double scale = 0;
  std::vector<std::int32_t> bounds;

  std::int64_t tokens() const { return bounds.back(); }
  bool is_layer() const { return model_dim > 0; }
};

/// A part of a projection row, in the order of SplitRopeForward.
struct ProjectionPart {
  std::string name;        ///< "q", "k_cmp", ..., "gate_logits"
  std::string weight;      ///< "w_q", ..., "w_g"
  std::int64_t heads = 0;  ///< or KV heads
  std::int64_t dim = 0;
  std::int64_t width() const { return heads * dim; }
};
std::vector<ProjectionPart> projection_parts(const GoldenCase& golden);

/// Reads and checks a file; every tensor that a run reads is there in the right shape. Throws Error
/// of exit code 3 with one sentence.
GoldenCase read_golden_case(const std::string& path);

}  // namespace nsa
