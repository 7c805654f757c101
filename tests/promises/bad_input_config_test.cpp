// Configurations that nsa_train refuses: exit code 2, one sentence with the place, what was found
// and what to write instead, and no file touched.

#include <ostream>

#include "promises/refusal.h"

namespace nsa::test {
namespace {

/// A fault of a configuration; `text` stands behind a first line that names data.
struct ConfigFault {
  std::string name;
  std::string text;
  Words parts;
};

// What a failing test shows of it. NOLINTNEXTLINE(readability-identifier-naming)
void PrintTo(const ConfigFault& fault, std::ostream* out) {
  *out << fault.text;
}

std::string name_of(const ::testing::TestParamInfo<ConfigFault>& info) {
  return info.param.name;
}

class BadConfig : public SmallRun, public ::testing::WithParamInterface<ConfigFault> {};

TEST_P(BadConfig, ExitsTwoWithItsPlaceAndTheRemedy) {
  spill(folder_ / "run.yaml", "data: {train: [train.bin]}\n" + GetParam().text);
  expect_train_refuses({}, {"--print-config"}, 2, GetParam().parts);
}

INSTANTIATE_TEST_SUITE_P(
    Keys, BadConfig,
    ::testing::Values(
        ConfigFault{"Unknown",
                    "model:\n  lyers: 2\n",
                    {"run.yaml:3:3: unknown key model.lyers", "did you mean model.layers?"}},
        ConfigFault{"UnknownSection",
                    "modle: {layers: 2}\n",
                    {"run.yaml:2:1: unknown key modle", "did you mean model?"}},
        ConfigFault{"OfAnotherSection",
                    "model: {steps: 5}\n",
                    {"run.yaml:2:9: unknown key model.steps",
                     "did you mean train.steps (in section train)?"}},
        ConfigFault{"OfAnotherProgram",
                    "learning_rate: 1e-3\n",
                    {"run.yaml:2:1: unknown key learning_rate", "did you mean optim.lr"}},
        ConfigFault{"LikeNone",
                    "model: {quux: 5}\n",
                    {"run.yaml:2:9: unknown key model.quux", "the keys of model are preset,"}},
        ConfigFault{
            "UnknownInAStage",
            "schedule:\n  stages:\n    - {from: 0, sqe_len: 64}\n",
            {"run.yaml:4:17: unknown key sqe_len of schedule.stages[0]", "did you mean seq_len?"}},
        ConfigFault{
            "Twice",
            "model:\n  layers: 2\n  heads: 4\n  layers: 3\n",
            {"run.yaml:5:3: layers is set twice", "first at ", "run.yaml:3:3", "keep one of them"}},
        ConfigFault{"SectionTwice",
                    "data: {val: [val.bin]}\n",
                    {"run.yaml:2:1: data is set twice", "run.yaml:1:1"}},
        ConfigFault{"Dotted",
                    "train.steps: 5\n",
                    {"run.yaml:2:1: train.steps: dotted names are for --override"}},
        ConfigFault{"NotBuilt",
                    "optim: {name: muon}\n",
                    {"run.yaml:2:15: optim.name", "muon is not in this version"}},
        ConfigFault{"OfTheTokenizer",
                    "tokenizer: {vocab: 5}\n",
                    {"run.yaml:2:13: unknown key tokenizer.vocab"}}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Values, BadConfig,
    ::testing::Values(
        ConfigFault{"WordForANumber",
                    "model:\n  layers: many\n",
                    {"run.yaml:3:11: model.layers is many", "a whole number, at least 1"}},
        ConfigFault{"FractionForAWholeNumber",
                    "train: {steps: 2.5}\n",
                    {"run.yaml:2:16: train.steps is 2.5", "a whole number"}},
        ConfigFault{"ListForANumber",
                    "model: {layers: [2]}\n",
                    {"run.yaml:2:17: model.layers is a list", "a whole number"}},
        ConfigFault{"MapForANumber",
                    "model: {layers: {a: 2}}\n",
                    {"run.yaml:2:17: model.layers is a map", "a whole number"}},
        ConfigFault{"NothingForANumber",
                    "model:\n  layers:\n",
                    {"run.yaml:3:3: model.layers is null", "a whole number"}},
        ConfigFault{"NumberForASection",
                    "model: 5\n",
                    {"run.yaml:2:8: model is 5", "a section with keys of its own"}},
        ConfigFault{"YesForTrue",
                    "model: {qk_norm: yes}\n",
                    {"run.yaml:2:18: model.qk_norm is yes", "true or false"}},
        ConfigFault{"MapForAPath",
                    "tokenizer: {model: {a: b}}\n",
                    {"run.yaml:2:20: tokenizer.model is a map", "a path"}},
        ConfigFault{"WordOutOfAChoice",
                    "attention: {kind: sparse}\n",
                    {"run.yaml:2:19: attention.kind is sparse", "nsa or dense"}},
        ConfigFault{"TooSmall",
                    "train: {seq_len: 0}\n",
                    {"run.yaml:2:18: train.seq_len is 0", "at least 1"}},
        ConfigFault{"TooLarge",
                    "train: {seq_len: 9223372036854775807}\n",
                    {"run.yaml:2:18: train.seq_len is 9223372036854775807", "at most"}},
        ConfigFault{"BeyondAnyNumber",
                    "train: {steps: 99999999999999999999}\n",
                    {"run.yaml:2:16: train.steps is 99999999999999999999", "a whole number"}},
        ConfigFault{"NotANumber",
                    "optim: {lr: .nan}\n",
                    {"run.yaml:2:13: optim.lr is .nan", "a number, greater than 0"}},
        ConfigFault{"Negative",
                    "optim: {weight_decay: -0.1}\n",
                    {"run.yaml:2:23: optim.weight_decay is -0.1", "at least 0"}},
        ConfigFault{"TwoLengths",
                    "train: {steps: 5, epochs: 2}\n",
                    {"run.yaml:2:", "steps", "epochs", "one"}},
        ConfigFault{"EndTokenOutsideTheVocabulary",
                    "tokenizer: {eos_id: 32768}\n",
                    {"run.yaml:2:21: tokenizer.eos_id is 32768", "model.vocab_size is 32768"}}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Yaml, BadConfig,
    ::testing::Values(
        ConfigFault{"OpenList",
                    "model:\n  layers: [1\n",
                    {"run.yaml:4:1: broken YAML", "end of sequence flow not found"}},
        ConfigFault{"Tab", "model:\n\tlayers: 2\n", {"run.yaml:3:", "broken YAML"}},
        ConfigFault{"UnknownAnchor", "model: *m\n", {"run.yaml:2:8: broken YAML"}},
        ConfigFault{"TwoDocuments", "---\nmodel: {}\n", {"run.yaml: holds 2 YAML documents"}},
        ConfigFault{"KeyThatIsAList", "? [a]\n: b\n", {"run.yaml:2:3: a key must be a word"}},
        ConfigFault{"NestedWithoutEnd",
                    "model: " + std::string(3000, '[') + "\n",
                    {"run.yaml:3:1: nested too deeply"}},
        ConfigFault{"UnsetVariable",
                    "run: {name: \"${env:NSA_NO_SUCH_NAME}\"}\n",
                    {"run.yaml:2:13: the environment variable NSA_NO_SUCH_NAME", "is not set"}}),
    name_of);

/// nsa_spec.md, section 10: what the geometry of the three branches cannot be.
INSTANTIATE_TEST_SUITE_P(
    Geometry, BadConfig,
    ::testing::Values(
        ConfigFault{"KvHeadsThatDoNotDivideHeads",
                    "model: {heads: 16, kv_heads: 3}\n",
                    {"run.yaml:2:30: model.kv_heads is 3", "does not divide model.heads (16)"}},
        ConfigFault{"HeadsThatDoNotDivideHidden",
                    "model: {hidden: 1000, heads: 16}\n",
                    {"run.yaml:2:", "model.heads", "1000", "model.head_dim"}},
        ConfigFault{"RotatedChannelsThatAreOdd",
                    "model: {rope_dim: 7}\n",
                    {"run.yaml:2:19: model.rope_dim is 7", "must be even"}},
        ConfigFault{"MoreRotatedChannelsThanThereAre",
                    "model: {head_dim: 32, rope_dim: 34}\n",
                    {"run.yaml:2:33: model.rope_dim is 34", "at most model.head_dim (32)"}},
        ConfigFault{"RateThatDoesNotDivideTheBlock",
                    "attention: {compress: {rate: 24}}\n",
                    {"run.yaml:2:30: attention.compress.rate is 24",
                     "must divide attention.select.block (64)", "Try 16 or 32"}},
        ConfigFault{"RateLargerThanTheBlock",
                    "attention: {compress: {rate: 128}}\n",
                    {"run.yaml:2:30: attention.compress.rate is 128",
                     "must divide attention.select.block (64)"}},
        ConfigFault{"CompressedBlockLargerThanTheBlock",
                    "attention: {compress: {rate: 64, overlap: 2}}\n",
                    {"run.yaml:2:30: attention.compress.rate is 64", "a compressed block has 128",
                     "more than attention.select.block (64)"}},
        ConfigFault{"RateOfAStage",
                    "train: {seq_len: 64, tokens_per_step: 640}\n"
                    "schedule: {stages: [{from: 0, rate: 8}, {from: 5, rate: 24}]}\n",
                    {"run.yaml:3:57: schedule.stages[1].rate is 24", "must divide"}},
        ConfigFault{"OverlapOfThree",
                    "attention: {compress: {overlap: 3}}\n",
                    {"run.yaml:2:33: attention.compress.overlap is 3", "at most 2"}},
        ConfigFault{"OverlapOfZero",
                    "attention: {compress: {overlap: 0}}\n",
                    {"run.yaml:2:33: attention.compress.overlap is 0", "at least 1"}},
        ConfigFault{"NoRate",
                    "attention: {compress: {rate: 0}}\n",
                    {"run.yaml:2:30: attention.compress.rate is 0", "at least 1"}},
        ConfigFault{"FewerBlocksThanAreForced",
                    "attention: {select: {top_n: 2, initial: 1, local: 2}}\n",
                    {"run.yaml:2:29: attention.select.top_n is 2",
                     "the forced blocks, initial (1) + local (2)"}},
        ConfigFault{"NoLocalBlock",
                    "attention: {select: {local: 0}}\n",
                    {"run.yaml:2:29: attention.select.local is 0", "at least 1"}},
        ConfigFault{"NegativeInitialBlocks",
                    "attention: {select: {initial: -1}}\n",
                    {"run.yaml:2:31: attention.select.initial is -1", "at least 0"}},
        ConfigFault{"NoWindow",
                    "attention: {window: 0}\n",
                    {"run.yaml:2:21: attention.window is 0", "at least 1"}},
        ConfigFault{"NoBins",
                    "attention: {compress: {bins: 0}}\n",
                    {"run.yaml:2:30: attention.compress.bins is 0", "at least 1"}},
        ConfigFault{"UnknownPhi",
                    "attention: {compress: {phi: max}}\n",
                    {"run.yaml:2:29: attention.compress.phi is max", "pool_mlp or mlp_flat"}},
        ConfigFault{"UnknownRotation",
                    "attention: {compress: {rope: x}}\n",
                    {"run.yaml:2:30: attention.compress.rope is x", "after, before or none"}},
        ConfigFault{"UnknownPosition",
                    "attention: {compress: {position: x}}\n",
                    {"run.yaml:2:34: attention.compress.position is x", "start, center or end"}},
        ConfigFault{"UnrotatedKeysForRotatedQueries",
                    "attention: {compress: {rope: none}}\n",
                    {"run.yaml:2:30: attention.compress.rope is none", "set model.rope_dim to 0"}},
        ConfigFault{"TwoLengthsOfMlpFlat",
                    "attention: {compress: {phi: mlp_flat}}\n"
                    "schedule: {stages: [{from: 0, rate: 8}, {from: 5, rate: 16}]}\n",
                    {"run.yaml:3:57: schedule.stages[1].rate is 16", "one block length (here 16)",
                     "Take phi pool_mlp"}},
        ConfigFault{"MlpFlatAtRateOneWithoutBypass",
                    "attention: {compress: {phi: mlp_flat, rate: 1, rate1_bypass: false}}\n",
                    {"run.yaml:2:45: attention.compress.rate is 1", "mlp_flat needs rate1_bypass"}},
        ConfigFault{"DenseLayerThatIsNotThere",
                    "attention: {dense_layers: [12]}\n",
                    {"run.yaml:2:27: attention.dense_layers names layer 12", "0 to 11"}},
        ConfigFault{"NoBranch",
                    "attention: {branches: []}\n",
                    {"run.yaml:2:23: attention.branches is an empty list"}}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Schedule, BadConfig,
    ::testing::Values(
        ConfigFault{"TokensThatSequencesDoNotFill",
                    "train: {seq_len: 48, tokens_per_step: 100}\n",
                    {"run.yaml:2:39: train.tokens_per_step is 100", "a multiple of seq_len (48)",
                     "Try 96 or 144"}},
        ConfigFault{"TokensThatMicroBatchesDoNotFill",
                    "train: {seq_len: 32, tokens_per_step: 160, micro_batch: 4}\n",
                    {"run.yaml:2:39: train.tokens_per_step is 160", "(4 x 32)", "Try 128 or 256"}},
        ConfigFault{"StagesThatDoNotClimb",
                    "schedule: {stages: [{from: 0}, {from: 9}, {from: 9}]}\n",
                    {"run.yaml:2:50: schedule.stages[2].from", "let the froms increase"}},
        ConfigFault{"AFirstStageThatBeginsLater",
                    "schedule: {stages: [{from: 5}]}\n",
                    {"run.yaml:2:28: schedule.stages[0].from is 5", "the first stage begins at 0"}},
        ConfigFault{"AContextThatDoesNotDivideThePage",
                    "train: {tokens_per_step: 9600}\n"
                    "schedule: {stages: [{from: 0, seq_len: 96}, {from: 5, seq_len: 160}]}\n",
                    {"run.yaml:3:40: schedule.stages[0].seq_len is 96",
                     "must divide the largest seq_len of the schedule (160)", "Try 80 or 160"}},
        ConfigFault{"AWsdTailOfNothing",
                    "schedule: {lr: {kind: wsd, decay: 0}}\n",
                    {"run.yaml:2:35: schedule.lr.decay is 0", "such as 0.2"}}),
    name_of);

class BadConfigFile : public SmallRun {};

TEST_F(BadConfigFile, ThatIsMissingIsNamed) {
  std::filesystem::remove(folder_ / "run.yaml");
  expect_train_refuses({}, {}, 2, {path("run.yaml"), "cannot be read"});
}

TEST_F(BadConfigFile, ThatIsAFolderIsRefused) {
  std::filesystem::remove(folder_ / "run.yaml");
  std::filesystem::create_directory(folder_ / "run.yaml");
  expect_train_refuses({}, {}, 2, {path("run.yaml")});
}

TEST_F(BadConfigFile, ThatIsEmptyIsRefused) {
  spill(folder_ / "run.yaml", "");
  expect_train_refuses({}, {}, 2, {path("run.yaml") + ": is empty", "data.train"});
}

TEST_F(BadConfigFile, WithoutTrainingDataIsRefused) {
  spill(folder_ / "run.yaml", "model: {layers: 2}\n");
  expect_train_refuses({}, {}, 2, {"data.train is not set", "[data/train_*.bin]"});
}

TEST_F(BadConfigFile, NotNamedAtAllIsRefused) {
  expect_refusal(run_program({std::string(NSA_BINARY_DIR) + "/nsa_train"}), 2,
                 {"--config PATH is needed", "--help"});
}

TEST_F(BadConfigFile, RefusedBeforeAnythingIsReadOrWritten) {
  expect_train_refuses({"data.train=[nowhere.bin]", "optim.lr=fast"}, {}, 2,
                       {"override 3: optim.lr is fast"});
}

TEST_F(BadConfigFile, OverridesAreCountedInTheirPlace) {
  expect_train_refuses({"train.steps=3", "train.stpes=4"}, {"--print-config"}, 2,
                       {"override 3: unknown key train.stpes", "did you mean train.steps?"});
  expect_train_refuses({"train.steps"}, {"--print-config"}, 2, {"override 2", "train.steps"});
  expect_train_refuses({"train.steps=[1"}, {"--print-config"}, 2, {"override 2", "broken YAML"});
}

TEST_F(BadConfigFile, AnUnknownFlagIsRefused) {
  expect_train_refuses({}, {"--pint-config"}, 2, {"--pint-config", "--help"});
}

TEST_F(BadConfigFile, FlagsThatWouldHaveNoEffectAreRefused) {
  expect_train_refuses({}, {"--plan", "--check-data"}, 2,
                       {"--plan and --check-data are two modes", "one of them"});
  expect_train_refuses({}, {"--print-config", "--verify-ckpt"}, 2,
                       {"--print-config and --verify-ckpt are two modes"});
  expect_train_refuses({}, {"--ckpt", path("ckpt")}, 2,
                       {"--ckpt is read by --eval-only", "--resume PATH"});
  expect_train_refuses({}, {"--resume", ""}, 2, {"--resume", "is empty"});
  expect_train_refuses({}, {"--eval-only", "--ckpt", ""}, 2, {"--ckpt", "is empty"});
}

TEST_F(BadConfigFile, KeysOfTheTokenizeProgramAreSentThere) {
  expect_train_refuses({"data.text_key=body"}, {"--print-config"}, 2,
                       {"data.text_key", "nsa_tokenize"});
  expect_train_refuses({"data.on_bad_line=skip"}, {"--print-config"}, 2,
                       {"data.on_bad_line", "nsa_tokenize"});
}

/// Only what has a meaning as null may be null.
TEST_F(BadConfigFile, AKeyWithoutItsValueIsRefused) {
  for (const char* key : {"train.steps", "train.seq_len", "model.vocab_size", "attention.window",
                          "optim.lr", "run.out_dir", "run.device", "log.metrics"}) {
    expect_train_refuses({std::string(key) + "="}, {"--print-config"}, 2, {key});
  }
}

}  // namespace
}  // namespace nsa::test
