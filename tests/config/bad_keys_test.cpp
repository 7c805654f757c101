#include <gtest/gtest.h>

#include "config/schema.h"
#include "config/suggest.h"
#include "yaml_file.h"

namespace nsa {
namespace {

class BadKey : public testing::TestWithParam<BadCase> {};

TEST_P(BadKey, IsRefusedWithTheKeyThatWasMeant) {
  EXPECT_EQ(refusal_of(GetParam().text), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Table, BadKey,
    testing::Values(
        BadCase{"Misspelt", "model:\n  lyers: 2\n",
                "run.yaml:3:3: unknown key model.lyers; did you mean model.layers?"},
        BadCase{"MisspeltTwice", "attention: {select: {blcok: 2}}\n",
                "run.yaml:2:22: unknown key attention.select.blcok; did you mean "
                "attention.select.block?"},
        BadCase{"UpperCase", "model: {Layers: 2}\n",
                "run.yaml:2:9: unknown key model.Layers; did you mean model.layers?"},
        BadCase{"OtherSection", "model: {seq_len: 2}\n",
                "run.yaml:2:9: unknown key model.seq_len; did you mean train.seq_len (in section "
                "train)?"},
        BadCase{"AtTheTop", "seed: 2\n",
                "run.yaml:2:1: unknown key seed; did you mean run.seed (in section run)?"},
        BadCase{"MisspeltSection", "modle: {layers: 2}\n",
                "run.yaml:2:1: unknown key modle; did you mean model?"},
        BadCase{"NestedSectionAtTheTop", "compress: {rate: 2}\n",
                "run.yaml:2:1: unknown key compress; did you mean attention.compress (in section "
                "attention)?"},
        BadCase{"Nothing", "model: {zzzzzzzz: 2}\n",
                "run.yaml:2:9: unknown key model.zzzzzzzz; the keys of model are preset, "
                "vocab_size, layers, hidden, heads, kv_heads, head_dim, v_head_dim, ffn, "
                "rope_theta, rope_dim, norm_eps, qk_norm, tie_embeddings, init_std, init_from"},
        BadCase{"NothingAtTheTop", "zzzzzzzz: 2\n",
                "run.yaml:2:1: unknown key zzzzzzzz; the sections are run, model, attention, data, "
                "tokenizer, train, optim, schedule, precision, memory, parallel, checkpoint, "
                "signals, eval, guard, log"},
        BadCase{"Dotted", "train.steps: 5\n",
                "run.yaml:2:1: train.steps: dotted names are for --override; in a map a key stands "
                "inside its section"},
        BadCase{"DottedInside", "schedule: {lr.kind: cosine}\n",
                "run.yaml:2:12: lr.kind: dotted names are for --override; in a map a key stands "
                "inside its section"},
        BadCase{"SectionThatIsAValue", "model: 5\n",
                "run.yaml:2:8: model is 5; it is a section with keys of its own"},
        BadCase{"OfAStage", "schedule:\n  stages:\n    - {from: 0, sqe_len: 5}\n",
                "run.yaml:4:17: unknown key sqe_len of schedule.stages[0]; did you mean seq_len?"},
        BadCase{"AliasOfAStage", "schedule: {stages: [{from: 0, seq_length: 5}]}\n",
                "run.yaml:2:31: unknown key seq_length of schedule.stages[0]; did you mean "
                "seq_len?"},
        BadCase{"NothingOfAStage", "schedule: {stages: [{from: 0, zzzzzzzz: 5}]}\n",
                "run.yaml:2:31: unknown key zzzzzzzz of schedule.stages[0]; a stage has from, "
                "seq_len, rate, tokens_per_step, micro_batch, rewarm"}),
    case_name);

struct AliasCase {
  std::string written;
  std::string meant;
};
class Alias : public testing::TestWithParam<AliasCase> {};

TEST_P(Alias, NamesOurKey) {
  const std::string message = refusal_of(GetParam().written + ": 1\n");
  EXPECT_NE(message.find("did you mean " + GetParam().meant), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(
    Table, Alias,
    testing::Values(AliasCase{"learning_rate", "optim.lr"}, AliasCase{"lerning_rate", "optim.lr"},
                    AliasCase{"batch_size", "train.tokens_per_step"},
                    AliasCase{"seq_length", "train.seq_len"}, AliasCase{"n_layer", "model.layers"},
                    AliasCase{"n_head", "model.heads"}, AliasCase{"hidden_size", "model.hidden"},
                    AliasCase{"num_attention_heads", "model.heads"},
                    AliasCase{"max_grad_norm", "optim.clip"},
                    AliasCase{"warmup_steps", "schedule.lr.warmup"},
                    AliasCase{"max_steps", "train.steps"}));

TEST(EditDistance, CountsInsertionsDeletionsAndReplacements) {
  EXPECT_EQ(settings::edit_distance("rate", "rate"), 0U);
  EXPECT_EQ(settings::edit_distance("rte", "rate"), 1U);
  EXPECT_EQ(settings::edit_distance("ratte", "rate"), 1U);
  EXPECT_EQ(settings::edit_distance("rbte", "rate"), 1U);
  EXPECT_EQ(settings::edit_distance("blcok", "block"), 2U);
  EXPECT_EQ(settings::edit_distance("", "abc"), 3U);
}

TEST(Schema, EveryNameStandsOnce) {
  std::vector<std::string> names;
  for (const settings::Key& key : settings::schema()) names.push_back(key.rules.name);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

TEST(Schema, EveryKeyIsExplained) {
  for (const settings::Key& key : settings::schema()) {
    EXPECT_FALSE(key.doc.empty()) << key.rules.name;
    EXPECT_FALSE(key.type.empty()) << key.rules.name;
  }
}

}  // namespace
}  // namespace nsa
