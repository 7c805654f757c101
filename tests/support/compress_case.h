#pragma once

// One compressor with its inputs, results and gradients, for the tests of both directions.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ops/ops.h"
#include "support/owned.h"

namespace nsa::test {

constexpr double kRopeBase = 100.0;

/// What one test varies.
struct Variant {
  Phi phi = Phi::kPoolMlp;
  std::int32_t rate = 4;
  std::int32_t overlap = 2;
  std::vector<std::int64_t> lengths = {37, 3, 0, 8, 1, 21};  // some shorter than a block of 8
  CompressPosition position = CompressPosition::kCenter;
  std::int64_t rotary_dim = 0;
  bool bypass = false;
  DType dtype = DType::kF64;
  std::int64_t heads = 2;
  std::int64_t dim = 6;
  std::int64_t hidden = 5;
  std::int64_t bins = 7;
};

struct OwnedPhi {
  OwnedPhi(const Variant& s, std::int64_t block, std::uint64_t seed, double std) {
    if (s.phi == Phi::kPoolMlp) theta = random_normal(s.dtype, {s.heads, s.bins}, seed, std);
    if (s.phi == Phi::kMlpFlat) position = random_normal(s.dtype, {block, s.dim}, seed + 1, std);
    if (s.phi == Phi::kMean) return;
    const std::int64_t input = s.phi == Phi::kMlpFlat ? block * s.dim : s.dim;
    w1 = random_normal(s.dtype, {s.hidden, input}, seed + 2, std);
    b1 = random_normal(s.dtype, {s.hidden}, seed + 3, std);
    w2 = random_normal(s.dtype, {s.dim, s.hidden}, seed + 4, std);
  }
  PhiWeights weights() const {
    return {.theta = theta.tensor(),
            .position = position.tensor(),
            .w1 = w1.tensor(),
            .b1 = b1.tensor(),
            .w2 = w2.tensor()};
  }
  Owned theta, position, w1, b1, w2;
};

/// One compressor with its inputs, results and gradients.
struct CompressCase {
  explicit CompressCase(const Variant& s)
      : variant(s),
        geometry({.rate = s.rate, .overlap = s.overlap}),
        documents(s.lengths),
        phi(s, geometry.compress_block(), 100, 0.6),
        dphi(s, geometry.compress_block(), 0, 0.0) {
    const std::int64_t tokens = Documents(documents).tokens();
    const std::int64_t rows = compressed_rows(documents, geometry);
    x = random_normal(s.dtype, {tokens, s.heads, s.dim}, 7);
    dx = random_normal(s.dtype, {tokens, s.heads, s.dim}, 8);  // must be overwritten
    out = random_normal(s.dtype, {rows, s.heads, s.dim}, 9);
    dout = random_normal(s.dtype, {rows, s.heads, s.dim}, 10);
  }
  CompressForward forward_op() const {
    return {.out = out,
            .x = x,
            .phi = variant.phi,
            .weights = phi.weights(),
            .bypass = variant.bypass,
            .rope = {.rotary_dim = variant.rotary_dim, .base = kRopeBase},
            .position = variant.position,
            .geometry = geometry,
            .documents = documents};
  }
  CompressBackward backward_op() const {
    return {.dx = dx,
            .dweights = variant.bypass ? PhiWeights{} : dphi.weights(),
            .dout = dout,
            .x = x,
            .phi = variant.phi,
            .weights = phi.weights(),
            .bypass = variant.bypass,
            .rope = {.rotary_dim = variant.rotary_dim, .base = kRopeBase},
            .position = variant.position,
            .geometry = geometry,
            .documents = documents};
  }
  void forward(Ops& ops) const { ops.run(forward_op()); }
  void backward(Ops& ops) const { ops.run(backward_op()); }
  double objective(Ops& ops) const {
    forward(ops);
    double sum = 0;
    for (std::int64_t i = 0; i < out.size(); ++i) sum += out.get(i) * dout.get(i);
    return sum;
  }

  Variant variant;
  NsaGeometry geometry;
  OwnedDocuments documents;
  OwnedPhi phi, dphi;
  Owned x, dx, out, dout;
};

inline constexpr Phi kCompressors[] = {Phi::kMean, Phi::kMeanMlp, Phi::kPoolMlp, Phi::kMlpFlat};
inline constexpr CompressPosition kPositions[] = {
    CompressPosition::kStart, CompressPosition::kCenter, CompressPosition::kEnd};

inline std::string name_of(const Variant& s) {
  return "phi " + std::to_string(static_cast<int>(s.phi)) + " rate " + std::to_string(s.rate) +
         " overlap " + std::to_string(s.overlap) + " position " +
         std::to_string(static_cast<int>(s.position)) + (s.bypass ? " bypass" : "");
}

/// Every compressor with every position of the keys, at rates with and without overlap.
inline std::vector<Variant> all_variants(DType dtype) {
  std::vector<Variant> variants;
  for (const Phi phi : kCompressors) {
    for (const CompressPosition position : kPositions) {
      for (const auto& [rate, overlap] :
           {std::pair{4, 2}, std::pair{5, 1}, std::pair{2, 4}, std::pair{1, 2}}) {
        variants.push_back({.phi = phi,
                            .rate = rate,
                            .overlap = overlap,
                            .position = position,
                            .rotary_dim = 4,
                            .dtype = dtype});
      }
    }
  }
  variants.push_back({.rate = 1, .rotary_dim = 4, .bypass = true, .dtype = dtype});
  variants.push_back({.phi = Phi::kMean, .rate = 1, .bypass = true, .dtype = dtype});
  return variants;
}

}  // namespace nsa::test
