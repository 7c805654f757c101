#pragma once

// Manifest: what a checkpoint folder says about itself, as JSON (manifest.json).

#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "train/run_state.h"

namespace nsa {

struct ManifestFile {
  std::string name;
  std::int64_t bytes = 0;
  std::uint32_t checksum = 0;  ///< CRC-32
};

/// Where elements [begin, end) of a bucket stand. Offsets in bytes. Named by bucket and range, so
/// that any number of ranks can have written it and any can read it.
struct ManifestRange {
  std::string bucket;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::string file;
  std::int64_t master = 0;
  std::int64_t m = 0;
  std::int64_t v = 0;
};

struct ManifestParameter {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t updates = 0;  ///< of the optimiser: bias correction
};

struct Manifest {
  static constexpr std::int64_t kFormat = 1;
  std::string library_version;
  std::uint32_t layout = 0;     ///< Layout::fingerprint()
  DType dtype = DType::kF32;    ///< of the master weights
  DType moments = DType::kF32;  ///< of m and v
  RunState state;
  std::vector<ManifestFile> files;
  std::vector<ManifestRange> ranges;
  std::vector<ManifestParameter> parameters;  ///< in layout order
};

/// JSON text that ends in its own checksum.
std::string to_json(const Manifest& manifest);
/// Throws Error (code 4) that says what is wrong: not JSON, a wrong checksum, another format
/// version, a field that is missing.
Manifest parse_manifest(const std::string& text);

}  // namespace nsa
