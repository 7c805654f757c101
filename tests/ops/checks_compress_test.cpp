#include <string>

#include <gtest/gtest.h>

#include "core/error.h"
#include "support/compress_case.h"

namespace nsa::test {
namespace {

/// The refusal must name the op and the field.
template <class Op>
void expect_refusal(const Op& op, const std::string& field) {
  try {
    op.check();
    ADD_FAILURE() << "accepted a wrong " << field;
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).rfind("Compress", 0), 0U) << error.what();
    EXPECT_NE(std::string(error.what()).find(field), std::string::npos) << error.what();
  }
}

TEST(CompressChecks, AcceptEveryVariant) {
  for (const Variant& variant : all_variants(DType::kF32)) {
    const CompressCase c(variant);
    EXPECT_NO_THROW(c.forward_op().check()) << name_of(variant);
    EXPECT_NO_THROW(c.backward_op().check()) << name_of(variant);
  }
}

TEST(CompressChecks, RefuseBypassAtAnyRateButOne) {
  expect_refusal(CompressCase({.rate = 2, .bypass = true}).forward_op(), "bypass");
}

TEST(CompressChecks, RefuseParametersThatPhiLacksAndMissingOnes) {
  const CompressCase c({.phi = Phi::kMeanMlp});
  CompressForward op = c.forward_op();
  op.weights.theta = Owned(DType::kF64, {2, 7}).tensor();
  expect_refusal(op, "theta");
  op = c.forward_op();
  op.weights.b1 = {};
  expect_refusal(op, "b1");
  op.phi = Phi::kMean;
  expect_refusal(op, "w1");
}

TEST(CompressChecks, RefuseWrongShapesAndTypes) {
  const CompressCase c({.phi = Phi::kMlpFlat});
  CompressForward op = c.forward_op();
  op.out = c.x;
  expect_refusal(op, "out");
  op = c.forward_op();
  op.geometry.overlap = 1;  // the position table is for two strides
  op.out = c.out;
  expect_refusal(op, "must be");
  op = c.forward_op();
  op.rope.rotary_dim = 3;
  expect_refusal(op, "rotary_dim");
  op = c.forward_op();
  const Owned rounded(DType::kF32, {c.variant.hidden});
  op.weights.b1 = rounded;
  expect_refusal(op, "b1");
}

TEST(CompressChecks, RefuseDocumentsThatDoNotCoverTheTokens) {
  const CompressCase c({});
  const OwnedDocuments shorter({37, 3, 0, 8, 1, 20});
  CompressForward op = c.forward_op();
  op.documents = shorter;
  expect_refusal(op, "documents");
}

TEST(CompressChecks, GradientsMustMirrorTheWeights) {
  const CompressCase c({});
  CompressBackward op = c.backward_op();
  op.dweights.theta = {};
  expect_refusal(op, "dweights");
  const CompressCase identity({.rate = 1, .bypass = true});
  op = identity.backward_op();
  op.dweights = identity.dphi.weights();
  expect_refusal(op, "dweights");
}

}  // namespace
}  // namespace nsa::test
