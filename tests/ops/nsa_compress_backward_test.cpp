#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "ops/backend.h"
#include "support/compress_case.h"
#include "support/gradcheck.h"
#include "support/near.h"

namespace nsa::test {
namespace {

TEST(CompressBackward, GradientsPassCentralDifferences) {
  Backend backend = make_backend("cpu", 2);
  for (const Variant& variant : all_variants(DType::kF64)) {
    const CompressCase c(variant);
    const auto objective = [&] { return c.objective(*backend.ops); };
    c.backward(*backend.ops);
    const std::string name = name_of(variant);
    expect_gradient(name + " x", objective, c.x, c.dx, 80);
    if (variant.bypass) continue;
    for (const auto& [field, what] :
         {std::pair{&OwnedPhi::theta, " theta"}, std::pair{&OwnedPhi::position, " position"},
          std::pair{&OwnedPhi::w1, " w1"}, std::pair{&OwnedPhi::b1, " b1"},
          std::pair{&OwnedPhi::w2, " w2"}}) {
      if (!(c.phi.*field).tensor().defined()) continue;
      expect_gradient(name + what, objective, c.phi.*field, c.dphi.*field, 40);
    }
  }
}

TEST(CompressBackward, GradientsPassCentralDifferencesOverManyChunks) {
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
    const std::int64_t width = c.variant.heads * c.variant.dim;
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
      const Variant packed_variant{
          .phi = phi, .rate = 2, .lengths = {9, 301, 3, 150}, .rotary_dim = 4, .dtype = dtype};
      const CompressCase packed(packed_variant);
      packed.forward(*backend.ops);
      packed.backward(*backend.ops);
      std::int64_t token = 0;
      std::int64_t row = 0;
      for (const std::int64_t length : packed_variant.lengths) {
        Variant lone_variant = packed_variant;
        lone_variant.lengths = {length};
        const CompressCase lone(lone_variant);
        const std::int64_t width = lone.variant.heads * lone.variant.dim;
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
    const Variant variant{.phi = phi, .rate = 1, .lengths = {2600, 40}, .dtype = DType::kF32};
    const CompressCase a(variant);
    const CompressCase b(variant);
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
    Variant variant{.phi = phi, .rate = 8, .lengths = {1500, 300}, .rotary_dim = 6};
    const CompressCase exact(variant);
    variant.dtype = DType::kF32;
    const CompressCase rounded(variant);
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

}  // namespace
}  // namespace nsa::test
