#include "model/activations.h"

#include <gtest/gtest.h>

#include "model/small_model.h"

namespace nsa {
namespace {

using test::small_config;
using test::SmallModel;

/// Activations of a two-layer model with memory for `largest`.
class Planned {
 public:
  explicit Planned(const Config& config,
                   const PlanShape& largest = {.rows = 40, .compressed_rows = 20})
      : model_(config),
        layers_{block_parameters(model_.store(), 0), block_parameters(model_.store(), 1)},
        activations_(config, layers_, DType::kF32) {
    bytes_ = activations_.measure(largest);
    activations_.allocate(*model_.backend().device, bytes_);
  }
  Activations& operator*() { return activations_; }
  Activations* operator->() { return &activations_; }

 private:
  SmallModel model_;
  std::vector<BlockParameters> layers_;
  Activations activations_;
  std::int64_t bytes_ = 0;
};

bool same_memory(const Tensor& a, const Tensor& b) {
  return a.defined() && a.data() == b.data();
}

TEST(Activations, EveryPolicyFitsWhereEverythingIsKept) {
  Planned planned(small_config());
  for (const Keep keep : {Keep::kEverything, Keep::kExpensive, Keep::kInput, Keep::kNothing}) {
    EXPECT_NO_THROW(planned->plan({.rows = 40, .compressed_rows = 20, .keep = keep}));
  }
}

TEST(Activations, NoneGivesEachBlockItsOwn) {
  Planned planned(small_config());
  planned->plan({.rows = 40, .compressed_rows = 20, .keep = Keep::kEverything});
  const BlockActivations& a = planned->blocks[0];
  const BlockActivations& b = planned->blocks[1];
  EXPECT_FALSE(same_memory(a.residual_in, b.residual_in));
  EXPECT_FALSE(same_memory(a.attention.normed, b.attention.normed));
  EXPECT_FALSE(same_memory(a.mlp.product, b.mlp.product));
}

TEST(Activations, SelectiveSharesWhatIsCheapToMakeAgain) {
  Planned planned(small_config());
  planned->plan({.rows = 40, .compressed_rows = 20, .keep = Keep::kExpensive});
  const BlockActivations& a = planned->blocks[0];
  const BlockActivations& b = planned->blocks[1];
  EXPECT_TRUE(same_memory(a.attention.normed, b.attention.normed));
  EXPECT_TRUE(same_memory(a.attention.compressed.k, b.attention.compressed.k));
  EXPECT_TRUE(same_memory(a.attention.combined, b.attention.combined));
  EXPECT_TRUE(same_memory(a.mlp.product, b.mlp.product));
  EXPECT_FALSE(same_memory(a.attention.branches[0], b.attention.branches[0]));
  EXPECT_FALSE(same_memory(a.mlp.gate_up, b.mlp.gate_up));
}

TEST(Activations, FullSharesAllButTheInputAndTheSelectedBlocks) {
  Planned planned(small_config());
  planned->plan({.rows = 40, .compressed_rows = 20, .keep = Keep::kInput});
  const BlockActivations& a = planned->blocks[0];
  const BlockActivations& b = planned->blocks[1];
  EXPECT_FALSE(same_memory(a.residual_in, b.residual_in));
  EXPECT_FALSE(same_memory(a.attention.blocks, b.attention.blocks));
  EXPECT_TRUE(same_memory(a.residual_mid, b.residual_mid));
  EXPECT_TRUE(same_memory(a.attention.q, b.attention.q));
  EXPECT_TRUE(same_memory(a.mlp.gate_up, b.mlp.gate_up));
}

TEST(Activations, SelectedBlocksStayWhereTheyAreUnderEveryPolicy) {
  Planned planned(small_config());
  planned->plan({.rows = 40, .compressed_rows = 20, .keep = Keep::kEverything});
  const void* place = planned->blocks[1].attention.blocks.data();
  planned->plan({.rows = 40, .compressed_rows = 7, .keep = Keep::kNothing});
  EXPECT_EQ(planned->blocks[1].attention.blocks.data(), place);
}

TEST(Activations, CompressedRowsAreThoseOfTheBatch) {
  Planned planned(small_config());
  planned->plan({.rows = 24, .compressed_rows = 9, .keep = Keep::kEverything});
  EXPECT_TRUE(planned->blocks[0].attention.compressed.k.has_shape({9, 2, 8}));
  EXPECT_TRUE(planned->blocks[0].attention.q.has_shape({24, 4, 8}));
}

TEST(Activations, SharedPairsHoldEqualTensorsOnce) {
  Config config = small_config();
  config.attention.share_kv = true;
  Planned planned(config);
  planned->plan({.rows = 40, .compressed_rows = 20, .keep = Keep::kEverything});
  const std::array<KvPair, 3>& pairs = planned->blocks[0].attention.pairs;
  EXPECT_TRUE(same_memory(pairs[kSelected].k, pairs[kWindow].k));
  EXPECT_FALSE(same_memory(pairs[kCompressed].k, pairs[kWindow].k));  // not rotated
  EXPECT_TRUE(same_memory(pairs[kCompressed].v, pairs[kWindow].v));
  EXPECT_TRUE(same_memory(pairs[kSelected].v, pairs[kWindow].v));
}

TEST(Activations, IndependentPairsHoldSixTensors) {
  Planned planned(small_config());
  planned->plan({.rows = 40, .compressed_rows = 20, .keep = Keep::kEverything});
  const std::array<KvPair, 3>& pairs = planned->blocks[0].attention.pairs;
  EXPECT_FALSE(same_memory(pairs[kSelected].k, pairs[kWindow].k));
  EXPECT_FALSE(same_memory(pairs[kCompressed].v, pairs[kWindow].v));
}

TEST(Activations, LogitsAreCutIntoTheNumberOfChunksThatIsAskedFor) {
  Config config = small_config();
  config.memory.logits_chunks = 3;
  Planned planned(config);
  planned->plan({.rows = 40, .compressed_rows = 20, .keep = Keep::kEverything});
  EXPECT_TRUE(planned->head.logits.has_shape({14, 13}));
}

TEST(Activations, LogitsTakeAtMostEightMebibytesByDefault) {
  Config config = small_config();
  config.model.vocab_size = 16384;
  const PlanShape shape{.rows = 400, .compressed_rows = 20, .keep = Keep::kNothing};
  Planned planned(config, shape);
  planned->plan(shape);
  EXPECT_TRUE(planned->head.logits.has_shape({128, 16384}));
}

TEST(Activations, AGpuTakesLogitsInLargerPieces) {
  Config config = small_config();
  config.model.vocab_size = 16384;
  config.run.device = "cuda:1";
  const PlanShape shape{.rows = 400, .compressed_rows = 20, .keep = Keep::kNothing};
  Planned planned(config, shape);
  planned->plan(shape);
  EXPECT_TRUE(planned->head.logits.has_shape({400, 16384}));
}

TEST(Activations, APlanBeyondTheMemoryIsRefused) {
  Planned planned(small_config());
  EXPECT_THROW(planned->plan({.rows = 41, .compressed_rows = 20, .keep = Keep::kEverything}),
               Error);
}

TEST(KeepOf, NamesTheSettingsOfTheConfiguration) {
  EXPECT_EQ(keep_of(Recompute::kNone), Keep::kEverything);
  EXPECT_EQ(keep_of(Recompute::kSelective), Keep::kExpensive);
  EXPECT_EQ(keep_of(Recompute::kFull), Keep::kInput);
}

}  // namespace
}  // namespace nsa
