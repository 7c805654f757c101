// The hand-written backward of a whole two-layer model against central differences, in double.

#include "support/gradcheck.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include <gtest/gtest.h>

#include "model/small_model.h"

namespace nsa {
namespace {

using test::OwnedBatch;
using test::small_config;
using test::SmallModel;

constexpr std::int64_t kElementsPerTensor = 12;

/// Checks evenly spread elements of one parameter; the loss reuses the selected blocks of the
/// unperturbed forward.
void check_parameter(SmallModel& model, const OwnedBatch& batch, const std::string& name) {
  const Tensor weight = model.store().weight(name);
  const std::vector<double> gradient = model.gradient(name);
  double largest = 0;
  for (const double value : gradient) largest = std::max(largest, std::abs(value));
  if (largest == 0) largest = 1;
  const std::int64_t stride = std::max<std::int64_t>(1, weight.size() / kElementsPerTensor);
  for (std::int64_t i = 0; i < weight.size(); i += stride) {
    double& element = weight.as<double>()[i];
    const double kept = element;
    element = kept + test::kGradcheckStep;
    const double above = model.loss(batch);
    element = kept - test::kGradcheckStep;
    const double below = model.loss(batch);
    element = kept;
    const double difference = (above - below) / (2 * test::kGradcheckStep);
    const double found = gradient[static_cast<std::size_t>(i)];
    EXPECT_NEAR(found, difference, test::kGradcheckTolerance * largest)
        << name << "[" << i << "], largest gradient of the tensor " << largest;
  }
}

void expect_exact_gradients(const Config& config,
                            const std::vector<std::int64_t>& documents = {29}) {
  SmallModel model(config);
  const OwnedBatch batch(documents, config.model.vocab_size);
  model.train(batch);
  model.transformer().set_reuse_blocks(true);
  for (const Parameter& parameter : model.layout().parameters()) {
    check_parameter(model, batch, parameter.name);
  }
}

Config with(const std::function<void(Config&)>& change) {
  Config config = small_config();
  change(config);
  return config;
}

TEST(TransformerGradient, MeanCompressor) {
  expect_exact_gradients(with([](Config& c) { c.attention.compress.phi = Phi::kMean; }));
}

TEST(TransformerGradient, MeanMlpCompressor) {
  expect_exact_gradients(with([](Config& c) { c.attention.compress.phi = Phi::kMeanMlp; }));
}

TEST(TransformerGradient, PoolMlpCompressor) {
  expect_exact_gradients(small_config());
}

TEST(TransformerGradient, MlpFlatCompressor) {
  expect_exact_gradients(with([](Config& c) {
    c.attention.compress.phi = Phi::kMlpFlat;
    c.attention.compress.hidden_key = 5;
    c.attention.compress.hidden_value = 7;
  }));
}

TEST(TransformerGradient, DenseLayers) {
  expect_exact_gradients(with([](Config& c) { c.attention.kind = AttentionKind::kDense; }));
}

TEST(TransformerGradient, ADenseLayerBeforeAnNsaLayer) {
  expect_exact_gradients(with([](Config& c) { c.attention.dense_layers = {0}; }));
}

TEST(TransformerGradient, UntiedHead) {
  expect_exact_gradients(with([](Config& c) { c.model.tie_embeddings = false; }));
}

TEST(TransformerGradient, QkNorm) {
  expect_exact_gradients(with([](Config& c) { c.model.qk_norm = true; }));
}

TEST(TransformerGradient, QkNormOfSharedKeysAndOfADenseLayer) {
  expect_exact_gradients(with([](Config& c) {
    c.model.qk_norm = true;
    c.attention.share_kv = true;
    c.attention.dense_layers = {1};
  }));
}

TEST(TransformerGradient, SharedKeysAndValues) {
  expect_exact_gradients(with([](Config& c) { c.attention.share_kv = true; }));
}

TEST(TransformerGradient, SharedKeysRotatedBeforeCompression) {
  expect_exact_gradients(with([](Config& c) {
    c.attention.share_kv = true;
    c.attention.compress.rope = CompressRope::kBefore;
  }));
}

TEST(TransformerGradient, SharedKeysThatAlsoOnlyScore) {
  expect_exact_gradients(with([](Config& c) {
    c.attention.share_kv = true;
    c.attention.compressed = false;
  }));
}

TEST(TransformerGradient, ValuesNarrowerThanKeysAndPartialRotation) {
  expect_exact_gradients(with([](Config& c) {
    c.model.v_head_dim = 6;
    c.model.rope_dim = 4;
    c.attention.compress.hidden_value = 6;
    c.attention.compress.position = CompressPosition::kEnd;
  }));
}

TEST(TransformerGradient, OneKvHeadForAllQueries) {
  expect_exact_gradients(with([](Config& c) { c.model.kv_heads = 1; }));
}

TEST(TransformerGradient, AKvHeadForEachQuery) {
  expect_exact_gradients(with([](Config& c) { c.model.kv_heads = 4; }));
}

TEST(TransformerGradient, NoRotation) {
  expect_exact_gradients(with([](Config& c) {
    c.model.rope_dim = 0;
    c.attention.compress.rope = CompressRope::kNone;
  }));
}

TEST(TransformerGradient, PackedDocuments) {
  expect_exact_gradients(small_config(), {13, 0, 1, 3, 20});
}

TEST(TransformerGradient, DocumentShorterThanACompressedBlock) {
  expect_exact_gradients(small_config(), {3});
}

TEST(TransformerGradient, ZLoss) {
  expect_exact_gradients(with([](Config& c) { c.optim.z_loss = 0.05; }));
}

TEST(TransformerGradient, RateOneWithBypass) {
  expect_exact_gradients(with([](Config& c) { c.attention.compress.rate = 1; }));
}

TEST(TransformerGradient, RateOneThroughTheCompressor) {
  expect_exact_gradients(with([](Config& c) {
    c.attention.compress.rate = 1;
    c.attention.compress.rate1_bypass = false;
  }));
}

TEST(TransformerGradient, LogitsInSeveralChunks) {
  expect_exact_gradients(with([](Config& c) { c.memory.logits_chunks = 3; }));
}

struct Branches {
  bool compressed, selected, window;
};

class TransformerGradientOfBranches : public testing::TestWithParam<Branches> {};

TEST_P(TransformerGradientOfBranches, IsExact) {
  expect_exact_gradients(with([](Config& c) {
    c.attention.compressed = GetParam().compressed;
    c.attention.selected = GetParam().selected;
    c.attention.window_branch = GetParam().window;
  }));
}

INSTANTIATE_TEST_SUITE_P(Subsets, TransformerGradientOfBranches,
                         testing::Values(Branches{true, false, false}, Branches{false, true, false},
                                         Branches{false, false, true}, Branches{true, true, false},
                                         Branches{true, false, true}, Branches{false, true, true}),
                         [](const auto& subset) {
                           std::string name;
                           if (subset.param.compressed) name += "Compressed";
                           if (subset.param.selected) name += "Selected";
                           if (subset.param.window) name += "Window";
                           return name;
                         });

}  // namespace
}  // namespace nsa
