#include <gtest/gtest.h>

#include "yaml_file.h"

namespace nsa {
namespace {

class DoesNotFit : public testing::TestWithParam<BadCase> {};

TEST_P(DoesNotFit, IsRefused) {
  EXPECT_EQ(refusal_of(GetParam().text), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Table, DoesNotFit,
    testing::Values(
        BadCase{"KvHeads", "model: {kv_heads: 3}\n",
                "run.yaml:2:19: model.kv_heads is 3, which does not divide model.heads (16)"},
        BadCase{"Hidden", "model: {hidden: 1000}\n",
                "run.yaml:2:17: model.hidden is 1000, which model.heads (16) does not divide; "
                "change one of them or set model.head_dim"},
        BadCase{"OddRotation", "model: {rope_dim: 3}\n",
                "run.yaml:2:19: model.rope_dim is 3; rotated channels come in pairs, so "
                "model.rope_dim must be even"},
        BadCase{"RotationOfMoreThanAHead", "model: {rope_dim: 128}\n",
                "run.yaml:2:19: model.rope_dim is 128; it can be at most model.head_dim (64)"},
        BadCase{"DenseLayerPastTheLast", "model: {layers: 2}\nattention: {dense_layers: [2]}\n",
                "run.yaml:3:27: attention.dense_layers names layer 2; model.layers is 2, so they "
                "are 0 to 1"},
        BadCase{"DenseLayerTwice", "attention: {dense_layers: [1, 1]}\n",
                "run.yaml:2:27: attention.dense_layers names layer 1 twice"},
        BadCase{"FewBlocks", "attention: {select: {top_n: 2}}\n",
                "run.yaml:2:29: attention.select.top_n is 2; it must hold the forced blocks, "
                "initial (1) + local (2)"},
        BadCase{"UnrotatedCompressedKeys", "attention: {compress: {rope: none}}\n",
                "run.yaml:2:30: attention.compress.rope is none while queries are rotated; take "
                "after, or set model.rope_dim to 0"},
        BadCase{"FlatMlpOfTwoLengths",
                "attention: {compress: {phi: mlp_flat}}\n"
                "schedule: {stages: [{from: 0}, {from: 9, rate: 8}]}\n",
                "run.yaml:3:48: schedule.stages[1].rate is 8; attention.compress.phi mlp_flat has "
                "one block length (here 32) for the whole run. Take phi pool_mlp to change it."},
        BadCase{"FlatMlpOfOneTokenWithoutBypass",
                "attention: {compress: {phi: mlp_flat, rate: 1, rate1_bypass: false}}\n",
                "run.yaml:2:45: attention.compress.rate is 1; attention.compress.phi mlp_flat "
                "needs rate1_bypass there"},
        BadCase{"TokensPerStep", "train: {tokens_per_step: 5000}\n",
                "run.yaml:2:26: train.tokens_per_step is 5000; it must be a multiple of seq_len "
                "(2048). Try 4096 or 6144."},
        BadCase{"MicroBatch", "train: {tokens_per_step: 8192, micro_batch: 3}\n",
                "run.yaml:2:26: train.tokens_per_step is 8192; it must be a multiple of "
                "micro_batch x seq_len (3 x 2048). Try 6144 or 12288."},
        BadCase{"TwoLengths", "train: {steps: 5, tokens: 5M}\n",
                "run.yaml:2:27: train.tokens is set beside train.steps; keep one of steps, epochs "
                "and tokens"},
        BadCase{"EosPastTheVocabulary", "tokenizer: {eos_id: 40000}\n",
                "run.yaml:2:21: tokenizer.eos_id is 40000; model.vocab_size is 32768"},
        BadCase{"SamplesWithoutATokenizer", "eval: {sample: hello}\n",
                "run.yaml:2:16: eval.sample.prompts needs tokenizer.model, which is not set"},
        BadCase{"NoDecay", "schedule: {lr: {kind: wsd, decay: 0}}\n",
                "run.yaml:2:35: schedule.lr.decay is 0; wsd needs a part of the run to decay in, "
                "such as 0.2"},
        BadCase{"ASignalForBoth", "signals: {save: [INT]}\n",
                "run.yaml:2:17: signals.save names INT, which is in signals.stop too"}),
    case_name);

TEST(Validate, TrainingDataAreNeeded) {
  EXPECT_EQ(refusal_of_file("model: {preset: tiny}\n"),
            "run.yaml: data.train is not set; name the token shards, such as [data/train_*.bin]");
}

TEST(Validate, UnrotatedCompressedKeysGoWithUnrotatedQueries) {
  EXPECT_NO_THROW(config_of("model: {rope_dim: 0}\nattention: {compress: {rope: none}}\n"));
}

TEST(Validate, AFlatMlpMayChangeItsStrideAtOneLength) {
  EXPECT_NO_THROW(
      config_of("attention: {compress: {phi: mlp_flat}}\n"
                "schedule: {stages: [{from: 0, rate: 1}, {from: 9, rate: 16}]}\n"));
}

TEST(Validate, DenseAttentionDoesNotLookAtBlocks) {
  EXPECT_NO_THROW(config_of("attention: {kind: dense, compress: {rate: 24}}\n"));
}

TEST(Validate, HeadsMayBeWiderThanTheStream) {
  EXPECT_NO_THROW(config_of("model: {hidden: 1000, head_dim: 64}\n"));
}

}  // namespace
}  // namespace nsa
