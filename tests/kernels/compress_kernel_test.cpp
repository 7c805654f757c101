#include "kernels/parity.h"
#include "ops/nsa_compress.h"
#include "support/compress_case.h"

namespace nsa {
namespace {

using test::Kind;
using test::Parity;
using test::random_normal;
using test::Variant;

class CompressKernel : public test::KernelTest {};
INSTANTIATE_TEST_SUITE_P(Types, CompressKernel, ::testing::Values(DType::kF32, DType::kBF16),
                         test::type_name);

const char* const kWeights[] = {"theta", "position", "w1", "b1", "w2"};

/// The weights of phi that the variant has, and their gradients, which are added to.
std::vector<std::string> add_weights(Parity& parity, const Variant& v, std::int64_t block) {
  const test::OwnedPhi phi(v, block, 100, 0.3);
  const test::OwnedPhi start(v, block, 200, 0.5);
  const auto fields = [](const test::OwnedPhi& of) {
    return std::vector<const test::Owned*>{&of.theta, &of.position, &of.w1, &of.b1, &of.w2};
  };
  std::vector<std::string> added;
  for (std::size_t i = 0; i < 5; ++i) {
    if (v.bypass || !fields(phi)[i]->tensor().defined()) continue;
    added.emplace_back(kWeights[i]);
    parity.input(added.back(), *fields(phi)[i]);
    parity.input("d" + added.back(), *fields(start)[i], Kind::kStat);
  }
  return added;
}

template <class Place>
PhiWeights weights_at(const Place& at, const std::vector<std::string>& names,
                      const std::string& prefix) {
  PhiWeights weights;
  Tensor* const fields[] = {&weights.theta, &weights.position, &weights.w1, &weights.b1,
                            &weights.w2};
  for (std::size_t i = 0; i < 5; ++i) {
    for (const std::string& name : names) {
      if (name == kWeights[i]) *fields[i] = at(prefix + name);
    }
  }
  return weights;
}

void expect_parity(DType dtype, const Variant& v) {
  SCOPED_TRACE(test::name_of(v));
  const NsaGeometry geometry{.rate = v.rate, .overlap = v.overlap};
  const test::OwnedDocuments documents(v.lengths);
  const std::int64_t tokens = Documents(documents).tokens();
  const std::int64_t rows = compressed_rows(documents, geometry);
  Parity parity(dtype);
  parity.input("x", random_normal(DType::kF32, {tokens, v.heads, v.dim}, 7));
  parity.input("dout", random_normal(DType::kF32, {rows, v.heads, v.dim}, 10));
  parity.output("out", {rows, v.heads, v.dim});
  parity.output("dx", {tokens, v.heads, v.dim});
  const std::vector<std::string> weights = add_weights(parity, v, geometry.compress_block());
  const RopeSpec rope{.rotary_dim = v.rotary_dim, .base = test::kRopeBase};
  parity.run(v.lengths, [&](Ops& ops, const auto& at, const Documents& on) {
    ops.run(CompressForward{.out = at("out"),
                            .x = at("x"),
                            .phi = v.phi,
                            .weights = weights_at(at, weights, ""),
                            .bypass = v.bypass,
                            .rope = rope,
                            .position = v.position,
                            .geometry = geometry,
                            .documents = on});
    ops.run(CompressBackward{.dx = at("dx"),
                             .dweights = weights_at(at, weights, "d"),
                             .dout = at("dout"),
                             .x = at("x"),
                             .phi = v.phi,
                             .weights = weights_at(at, weights, ""),
                             .bypass = v.bypass,
                             .rope = rope,
                             .position = v.position,
                             .geometry = geometry,
                             .documents = on});
  });
  EXPECT_TRUE(parity.near("out", test::tolerance(dtype)));
  EXPECT_TRUE(parity.near("dx", test::tolerance(dtype)));
  for (const std::string& name : weights) {
    EXPECT_TRUE(parity.near("d" + name, test::tolerance(dtype, 2e-5)));
  }
}

Variant variant(Phi phi) {
  return {.phi = phi, .rotary_dim = 16, .dtype = DType::kF32, .heads = 2, .dim = 32, .hidden = 24};
}

TEST_P(CompressKernel, EveryPhiAtEveryRate) {
  for (const Phi phi : test::kCompressors) {
    for (const std::int32_t rate : {1, 4, 16}) {
      Variant v = variant(phi);
      v.rate = rate;
      v.lengths = {137, 3, 0, 40, 1, 64};
      expect_parity(GetParam(), v);
    }
  }
}

TEST_P(CompressKernel, EveryPositionAndOverlap) {
  for (const CompressPosition position : test::kPositions) {
    for (const std::int32_t overlap : {1, 2, 4}) {
      Variant v = variant(Phi::kPoolMlp);
      v.position = position;
      v.overlap = overlap;
      expect_parity(GetParam(), v);
    }
  }
}

TEST_P(CompressKernel, RateOneMayBypassPhi) {
  Variant v = variant(Phi::kPoolMlp);
  v.rate = 1;
  v.bypass = true;
  expect_parity(GetParam(), v);
}

TEST_P(CompressKernel, ValuesAreNotTurned) {
  Variant v = variant(Phi::kMeanMlp);
  v.rotary_dim = 0;
  expect_parity(GetParam(), v);
}

TEST_P(CompressKernel, DocumentsShorterThanABlockGiveNothing) {
  for (const Phi phi : test::kCompressors) {
    Variant v = variant(phi);
    v.lengths = {7, 1, 5};
    expect_parity(GetParam(), v);
  }
}

TEST_P(CompressKernel, ManyRows) {
  Variant v = variant(Phi::kPoolMlp);
  v.lengths = {3000, 500};
  expect_parity(GetParam(), v);
}

}  // namespace
}  // namespace nsa
