#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "ops/backend.h"
#include "support/gradcheck.h"
#include "support/near.h"
#include "support/owned.h"

namespace nsa::test {
namespace {

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
      : setup(s),
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
  void forward(Ops& ops) const {
    ops.run(CompressForward{.out = out,
                            .x = x,
                            .phi = setup.phi,
                            .weights = phi.weights(),
                            .bypass = setup.bypass,
                            .rope = {.rotary_dim = setup.rotary_dim, .base = 100.0},
                            .position = setup.position,
                            .geometry = geometry,
                            .documents = documents});
  }
  void backward(Ops& ops) const {
    ops.run(CompressBackward{.dx = dx,
                             .dweights = setup.bypass ? PhiWeights{} : dphi.weights(),
                             .dout = dout,
                             .x = x,
                             .phi = setup.phi,
                             .weights = phi.weights(),
                             .bypass = setup.bypass,
                             .rope = {.rotary_dim = setup.rotary_dim, .base = 100.0},
                             .position = setup.position,
                             .geometry = geometry,
                             .documents = documents});
  }
  double objective(Ops& ops) const {
    forward(ops);
    double sum = 0;
    for (std::int64_t i = 0; i < out.size(); ++i) sum += out.get(i) * dout.get(i);
    return sum;
  }

  Variant setup;
  NsaGeometry geometry;
  OwnedDocuments documents;
  OwnedPhi phi, dphi;
  Owned x, dx, out, dout;
};

/// Pooling weights by sampling: bin shares from overlaps of real intervals, then softmax.
std::vector<double> naive_pool(const CompressCase& c, std::int64_t head) {
  const std::int64_t block = c.geometry.compress_block();
  std::vector<double> w(static_cast<std::size_t>(block), 0.0);
  const double l = static_cast<double>(block);
  const double bins = static_cast<double>(c.setup.bins);
  double sum = 0;
  for (std::int64_t j = 0; j < block; ++j) {
    double logit = 0;
    for (std::int64_t m = 0; c.setup.phi == Phi::kPoolMlp && m < c.setup.bins; ++m) {
      const double left = std::max(static_cast<double>(j) / l, static_cast<double>(m) / bins);
      const double right =
          std::min(static_cast<double>(j + 1) / l, static_cast<double>(m + 1) / bins);
      logit += c.phi.theta.get(head * c.setup.bins + m) * l * std::max(0.0, right - left);
    }
    sum += w[static_cast<std::size_t>(j)] = std::exp(logit);
  }
  for (double& weight : w) weight /= sum;
  return w;
}

/// W2 silu(W1 z + b1).
std::vector<double> naive_mlp(const CompressCase& c, const std::vector<double>& z) {
  std::vector<double> y(static_cast<std::size_t>(c.setup.dim), 0.0);
  for (std::int64_t f = 0; f < c.setup.hidden; ++f) {
    double alpha = c.phi.b1.get(f);
    for (std::size_t i = 0; i < z.size(); ++i) {
      const auto width = static_cast<std::int64_t>(z.size());
      alpha += c.phi.w1.get(f * width + static_cast<std::int64_t>(i)) * z[i];
    }
    const double u = alpha / (1 + std::exp(-alpha));
    for (std::int64_t d = 0; d < c.setup.dim; ++d) {
      y[static_cast<std::size_t>(d)] += c.phi.w2.get(d * c.setup.hidden + f) * u;
    }
  }
  return y;
}

/// phi of the block that starts at `token`, for one head.
std::vector<double> naive_phi(const CompressCase& c, std::int64_t token, std::int64_t head) {
  const std::int64_t block = c.geometry.compress_block();
  const std::int64_t dim = c.setup.dim;
  const auto at = [&](std::int64_t j, std::int64_t d) {
    return c.x.get(((token + j) * c.setup.heads + head) * dim + d);
  };
  if (c.setup.phi == Phi::kMlpFlat) {
    std::vector<double> z;
    for (std::int64_t j = 0; j < block; ++j) {
      for (std::int64_t d = 0; d < dim; ++d) {
        z.push_back(at(j, d) + c.phi.position.get(j * dim + d));
      }
    }
    return naive_mlp(c, z);
  }
  const std::vector<double> w = naive_pool(c, head);
  std::vector<double> p(static_cast<std::size_t>(dim), 0.0);
  for (std::int64_t j = 0; j < block; ++j) {
    for (std::int64_t d = 0; d < dim; ++d) {
      p[static_cast<std::size_t>(d)] += w[static_cast<std::size_t>(j)] * at(j, d);
    }
  }
  if (c.setup.phi == Phi::kMean) return p;
  std::vector<double> y = naive_mlp(c, p);
  if (c.setup.phi == Phi::kPoolMlp) {
    for (std::size_t d = 0; d < y.size(); ++d) y[d] += p[d];
  }
  return y;
}

void naive_rope(std::vector<double>& y, std::int64_t rotary_dim, std::int64_t position) {
  for (std::int64_t k = 0; k < rotary_dim / 2; ++k) {
    const double exponent = -2.0 * static_cast<double>(k) / static_cast<double>(rotary_dim);
    const double angle = static_cast<double>(position) * std::pow(100.0, exponent);
    double& a = y[static_cast<std::size_t>(k)];
    double& b = y[static_cast<std::size_t>(k + rotary_dim / 2)];
    const double turned = a * std::cos(angle) - b * std::sin(angle);
    b = b * std::cos(angle) + a * std::sin(angle);
    a = turned;
  }
}

/// The whole op, by definition: block after block of every document.
Owned naive_compress(const CompressCase& c) {
  Owned result(c.setup.dtype,
               {c.out.tensor().dim(0), c.out.tensor().dim(1), c.out.tensor().dim(2)});
  const Documents documents = c.documents;
  const std::int64_t block = c.geometry.compress_block();
  const std::int64_t offset = compress_position_offset(c.setup.position, block);
  std::int64_t at = 0;
  for (std::int64_t d = 0; d < documents.count(); ++d) {
    for (std::int64_t start = 0; start + block <= documents.length(d);
         start += c.geometry.compress_stride()) {
      for (std::int64_t h = 0; h < c.setup.heads; ++h) {
        std::vector<double> y;
        if (c.setup.bypass) {
          for (std::int64_t i = 0; i < c.setup.dim; ++i) {
            y.push_back(
                c.x.get(((documents.begin(d) + start) * c.setup.heads + h) * c.setup.dim + i));
          }
        } else {
          y = naive_phi(c, documents.begin(d) + start, h);
        }
        naive_rope(y, c.setup.rotary_dim, start + offset);
        for (const double value : y) result.set(at++, value);
      }
    }
  }
  return result;
}

constexpr Phi kCompressors[] = {Phi::kMean, Phi::kMeanMlp, Phi::kPoolMlp, Phi::kMlpFlat};
constexpr CompressPosition kPositions[] = {CompressPosition::kStart, CompressPosition::kCenter,
                                           CompressPosition::kEnd};

std::string name_of(const Variant& s) {
  return "phi " + std::to_string(static_cast<int>(s.phi)) + " rate " + std::to_string(s.rate) +
         " overlap " + std::to_string(s.overlap) + " position " +
         std::to_string(static_cast<int>(s.position)) + (s.bypass ? " bypass" : "");
}

/// Every variant with every position of the keys, at rates with and without overlap.
std::vector<Variant> all_variants(DType dtype) {
  std::vector<Variant> setups;
  for (const Phi phi : kCompressors) {
    for (const CompressPosition position : kPositions) {
      for (const auto& [rate, overlap] :
           {std::pair{4, 2}, std::pair{5, 1}, std::pair{2, 4}, std::pair{1, 2}}) {
        setups.push_back({.phi = phi,
                          .rate = rate,
                          .overlap = overlap,
                          .position = position,
                          .rotary_dim = 4,
                          .dtype = dtype});
      }
    }
  }
  setups.push_back({.rate = 1, .rotary_dim = 4, .bypass = true, .dtype = dtype});
  setups.push_back({.phi = Phi::kMean, .rate = 1, .bypass = true, .dtype = dtype});
  return setups;
}

TEST(Compress, ForwardFollowsTheDefinition) {
  Backend backend = make_backend("cpu", 2);
  for (const DType dtype : {DType::kF64, DType::kF32}) {
    for (const Variant& setup : all_variants(dtype)) {
      const CompressCase c(setup);
      c.forward(*backend.ops);
      EXPECT_TRUE(near(c.out, naive_compress(c), dtype == DType::kF64 ? 1e-13 : 1e-6))
          << name_of(setup);
    }
  }
}

TEST(Compress, GradientsPassCentralDifferences) {
  Backend backend = make_backend("cpu", 2);
  for (const Variant& setup : all_variants(DType::kF64)) {
    const CompressCase c(setup);
    const auto objective = [&] { return c.objective(*backend.ops); };
    c.backward(*backend.ops);
    const std::string name = name_of(setup);
    expect_gradient(name + " x", objective, c.x, c.dx, 80);
    if (setup.bypass) continue;
    for (const auto& [field, what] :
         {std::pair{&OwnedPhi::theta, " theta"}, std::pair{&OwnedPhi::position, " position"},
          std::pair{&OwnedPhi::w1, " w1"}, std::pair{&OwnedPhi::b1, " b1"},
          std::pair{&OwnedPhi::w2, " w2"}}) {
      if (!(c.phi.*field).tensor().defined()) continue;
      expect_gradient(name + what, objective, c.phi.*field, c.dphi.*field, 40);
    }
  }
}

TEST(Compress, GradientsPassCentralDifferencesOverManyChunks) {
  Backend backend = make_backend("cpu", 2);
  for (const Phi phi : {Phi::kPoolMlp, Phi::kMlpFlat}) {
    const CompressCase c({.phi = phi, .rate = 2, .lengths = {300, 5, 200}, .rotary_dim = 6});
    const auto objective = [&] { return c.objective(*backend.ops); };
    c.backward(*backend.ops);
    expect_gradient("x", objective, c.x, c.dx, 100);
    expect_gradient("w1", objective, c.phi.w1, c.dphi.w1, 30);
    expect_gradient("b1", objective, c.phi.b1, c.dphi.b1, 30);
    expect_gradient("w2", objective, c.phi.w2, c.dphi.w2, 30);
  }
}

TEST(Compress, ParameterGradientsAreAddedToWhatWasThere) {
  Backend backend = make_backend("cpu", 2);
  for (const Phi phi : {Phi::kPoolMlp, Phi::kMlpFlat}) {
    const CompressCase c({.phi = phi});
    c.backward(*backend.ops);
    const std::vector<double> w1 = c.dphi.w1.values();
    const Owned& shape = phi == Phi::kPoolMlp ? c.dphi.theta : c.dphi.position;
    const std::vector<double> other = shape.values();
    c.backward(*backend.ops);
    for (std::size_t i = 0; i < w1.size(); ++i) {
      ASSERT_DOUBLE_EQ(c.dphi.w1.get(static_cast<std::int64_t>(i)), 2 * w1[i]);
    }
    for (std::size_t i = 0; i < other.size(); ++i) {
      ASSERT_NEAR(shape.get(static_cast<std::int64_t>(i)), 2 * other[i], 1e-14);
    }
  }
}

TEST(Compress, TokensInNoBlockGetNoGradient) {
  Backend backend = make_backend("cpu", 2);
  for (const Phi phi : kCompressors) {
    const CompressCase c({.phi = phi, .lengths = {5, 18}});  // blocks of 8 at 4: tokens 5 .. 20
    c.backward(*backend.ops);
    const std::int64_t width = c.setup.heads * c.setup.dim;
    for (std::int64_t i = 0; i < c.dx.size(); ++i) {
      const std::int64_t token = i / width;
      if (token < 5 || token >= 21) {
        ASSERT_EQ(c.dx.get(i), 0.0) << "token " << token;
      } else {
        ASSERT_NE(c.dx.get(i), 0.0) << "token " << token;
      }
    }
  }
}

TEST(Compress, PoolMlpStartsAsTheMeanAtEveryRate) {
  Backend backend = make_backend("cpu", 2);
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    for (const std::int32_t rate : {1, 2, 4, 7, 16}) {
      const CompressCase pool({.rate = rate, .lengths = {70, 40}, .dtype = dtype});
      pool.phi.theta.fill(0);
      pool.phi.w2.fill(0);
      const CompressCase mean(
          {.phi = Phi::kMean, .rate = rate, .lengths = {70, 40}, .dtype = dtype});
      pool.forward(*backend.ops);
      mean.forward(*backend.ops);
      EXPECT_TRUE(same(pool.out, mean.out)) << "rate " << rate;
    }
  }
}

TEST(Compress, BypassGivesTheInputItself) {
  Backend backend = make_backend("cpu", 2);
  const CompressCase c({.rate = 1, .bypass = true});
  c.forward(*backend.ops);
  EXPECT_TRUE(same(c.out, c.x));
  c.backward(*backend.ops);
  EXPECT_TRUE(same(c.dx, c.dout));
}

TEST(Compress, ThetaHasNoGradientAtRateOne) {
  Backend backend = make_backend("cpu", 2);
  const CompressCase c({.rate = 1});
  c.backward(*backend.ops);
  for (const double value : c.dphi.theta.values()) EXPECT_EQ(value, 0.0);
}

TEST(Compress, DocumentsShorterThanABlockYieldNothing) {
  Backend backend = make_backend("cpu", 2);
  for (const Phi phi : kCompressors) {
    const CompressCase c({.phi = phi, .lengths = {7, 0, 1}});
    ASSERT_EQ(c.out.size(), 0);
    c.forward(*backend.ops);
    c.backward(*backend.ops);
    for (const double value : c.dx.values()) ASSERT_EQ(value, 0.0);
    for (const double value :
         c.dphi.w1.tensor().defined() ? c.dphi.w1.values() : std::vector<double>()) {
      ASSERT_EQ(value, 0.0);
    }
  }
}

TEST(Compress, APackedDocumentGetsTheBitsOfALoneOne) {
  Backend backend = make_backend("cpu", 2);
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    for (const Phi phi : kCompressors) {
      const Variant packed_setup{
          .phi = phi, .rate = 2, .lengths = {9, 301, 3, 150}, .rotary_dim = 4, .dtype = dtype};
      const CompressCase packed(packed_setup);
      packed.forward(*backend.ops);
      packed.backward(*backend.ops);
      std::int64_t token = 0;
      std::int64_t row = 0;
      for (const std::int64_t length : packed_setup.lengths) {
        Variant lone_setup = packed_setup;
        lone_setup.lengths = {length};
        const CompressCase lone(lone_setup);
        const std::int64_t width = lone.setup.heads * lone.setup.dim;
        for (std::int64_t i = 0; i < lone.x.size(); ++i) {
          lone.x.set(i, packed.x.get(token * width + i));
        }
        for (std::int64_t i = 0; i < lone.dout.size(); ++i) {
          lone.dout.set(i, packed.dout.get(row * width + i));
        }
        lone.forward(*backend.ops);
        lone.backward(*backend.ops);
        for (std::int64_t i = 0; i < lone.out.size(); ++i) {
          ASSERT_EQ(lone.out.get(i), packed.out.get(row * width + i)) << "document of " << length;
        }
        for (std::int64_t i = 0; i < lone.dx.size(); ++i) {
          ASSERT_EQ(lone.dx.get(i), packed.dx.get(token * width + i)) << "document of " << length;
        }
        token += length;
        row += compressed_rows(lone.documents, lone.geometry);
      }
    }
  }
}

TEST(Compress, ResultsDoNotDependOnTheNumberOfThreads) {
  Backend one = make_backend("cpu", 1);
  Backend three = make_backend("cpu", 3);
  for (const Phi phi : kCompressors) {
    // More chunks than partial sums, so that a partial sum takes several chunks.
    const Variant setup{.phi = phi, .rate = 1, .lengths = {2600, 40}, .dtype = DType::kF32};
    const CompressCase a(setup);
    const CompressCase b(setup);
    a.forward(*one.ops);
    a.backward(*one.ops);
    b.forward(*three.ops);
    b.backward(*three.ops);
    EXPECT_TRUE(same(a.out, b.out));
    EXPECT_TRUE(same(a.dx, b.dx));
    for (const auto field :
         {&OwnedPhi::theta, &OwnedPhi::position, &OwnedPhi::w1, &OwnedPhi::b1, &OwnedPhi::w2}) {
      if (!(a.dphi.*field).tensor().defined()) continue;
      EXPECT_TRUE(same(a.dphi.*field, b.dphi.*field));
    }
  }
}

TEST(Compress, FloatGradientsFollowTheDoubleOnes) {
  Backend backend = make_backend("cpu", 2);
  for (const Phi phi : kCompressors) {
    Variant setup{.phi = phi, .rate = 8, .lengths = {1500, 300}, .rotary_dim = 6};
    const CompressCase exact(setup);
    setup.dtype = DType::kF32;
    const CompressCase rounded(setup);
    exact.backward(*backend.ops);
    rounded.backward(*backend.ops);
    EXPECT_TRUE(near(rounded.dx, exact.dx, 1e-5));
    for (const auto field :
         {&OwnedPhi::theta, &OwnedPhi::position, &OwnedPhi::w1, &OwnedPhi::b1, &OwnedPhi::w2}) {
      if (!(exact.dphi.*field).tensor().defined()) continue;
      EXPECT_TRUE(near(rounded.dphi.*field, exact.dphi.*field, 1e-5));
    }
  }
}

TEST(Compress, RefusesBypassAtAnyOtherRateAndParametersThatPhiLacks) {
  Backend backend = make_backend("cpu", 1);
  EXPECT_THROW(CompressCase({.rate = 2, .bypass = true}).forward(*backend.ops), Error);
  CompressCase c({.phi = Phi::kMean});
  c.phi.theta = Owned(DType::kF64, {2, 7});
  EXPECT_THROW(c.forward(*backend.ops), Error);
}

}  // namespace
}  // namespace nsa::test
