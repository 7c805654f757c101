// nsa_tokenize: trains a tokenizer on text, and turns text into token shards.

#include <cstdint>
#include <map>
#include <string>

#include <CLI/CLI.hpp>

#include "command_line.h"
#include "core/error.h"
#include "core/format.h"
#include "core/log.h"
#include "data/encode.h"
#include "data/tokenizer_train.h"

namespace {

/// The options about text that both commands share.
void add_corpus_options(CLI::App& command, nsa::CorpusOptions& corpus, std::string& on_bad_line) {
  command
      .add_option("--in", corpus.paths,
                  "Files, folders or globs of text; folders are searched for .txt, .jsonl, "
                  ".jsonl.gz, .jsonl.zst and each --suffix")
      ->required();
  command.add_option("--suffix", corpus.suffixes, "Another suffix that folders are searched for");
  command.add_option("--text-key", corpus.text_key, "Where a JSONL object holds its text")
      ->capture_default_str();
  command
      .add_option("--on-bad-line", on_bad_line,
                  "Stop at a JSONL line that cannot be read, or skip and count it")
      ->check(CLI::IsMember({"error", "skip"}))
      ->capture_default_str();
}

std::string skipped(const nsa::CorpusCounts& corpus) {
  return fmt::format("skipped: {} empty, {} bad lines; invalid UTF-8 replaced in {} documents",
                     corpus.empty, corpus.bad_lines, corpus.repaired);
}

void run_train(const nsa::TokenizerTrainOptions& options) {
  const nsa::TokenizerTrainReport report = nsa::train_tokenizer(options);
  nsa::log::info(fmt::format("trained {}: {} pieces from {} documents in {} files, {} bytes{}",
                             options.out, options.vocab_size, report.corpus.documents,
                             report.corpus.files, report.corpus.bytes,
                             report.sampled_bytes < report.corpus.bytes
                                 ? fmt::format(", of which {} were used", report.sampled_bytes)
                                 : ""));
  nsa::log::info(skipped(report.corpus));
}

void run_encode(const nsa::EncodeOptions& options) {
  const nsa::EncodeReport report = nsa::encode_corpus(options);
  const std::int64_t tokens = report.tokens();
  nsa::log::info(
      fmt::format("encoded {} documents of {} files: {} tokens, {:.2f} bytes a token",
                  report.corpus.documents - report.without_tokens, report.corpus.files, tokens,
                  static_cast<double>(report.corpus.bytes) / static_cast<double>(tokens)));
  for (const nsa::EncodedSplit& split : report.splits) {
    nsa::log::info(fmt::format("  {:<5} {:>9} documents {:>13} tokens {:>5} shards  {}", split.name,
                               split.documents, split.tokens, split.shards.size(),
                               split.shards.front()));
  }
  nsa::log::info(skipped(report.corpus) +
                 (report.without_tokens == 0
                      ? ""
                      : fmt::format("; {} documents gave no token", report.without_tokens)));
  if (report.replaced > 0) {
    nsa::log::info(fmt::format("removed {} more shards of an earlier run", report.replaced));
  }
}

nsa::ExitCode run(int argc, char** argv) {
  CLI::App app("Text to tokens: trains a sentencepiece model, and encodes text into token shards.",
               "nsa_tokenize");
  app.require_subcommand(1);
  std::string on_bad_line = "error";
  nsa::TokenizerTrainOptions train;
  CLI::App* train_command = app.add_subcommand("train", "Train a sentencepiece model on text");
  add_corpus_options(*train_command, train.corpus, on_bad_line);
  train_command->add_option("--vocab-size", train.vocab_size, "Pieces of the model")->required();
  train_command->add_option("--out", train.out, "The model file to write")->required();

  nsa::EncodeOptions encode;
  std::string format = "nsa";
  CLI::App* encode_command = app.add_subcommand("encode", "Turn text into token shards");
  encode_command->add_option("--model", encode.model, "The sentencepiece model")->required();
  add_corpus_options(*encode_command, encode.corpus, on_bad_line);
  encode_command
      ->add_option("--out", encode.out,
                   "Prefix of the shards (PREFIX_00000.bin), or a folder for them")
      ->required();
  encode_command
      ->add_option("--format", format,
                   "Format of the shards: nsa; llmc (.bin, the end mark before each document); "
                   "megatron (.bin and .idx)")
      ->check(CLI::IsMember({"nsa", "llmc", "megatron"}))
      ->capture_default_str();
  encode_command->add_option("--val-fraction", encode.val_fraction,
                             "Share of the documents that go to PREFIX_val_*.bin, the others to "
                             "PREFIX_train_*.bin");
  encode_command
      ->add_option("--shard-tokens", encode.shard_tokens,
                   "Tokens a shard holds at most (K, M and B are known), unless one document has "
                   "more")
      ->transform(CLI::AsNumberWithUnit(std::map<std::string, std::int64_t>{
          {"K", 1'000}, {"M", 1'000'000}, {"B", 1'000'000'000}}))
      ->capture_default_str();
  if (!nsa::read_command_line(app, argc, argv)) return nsa::ExitCode::kDone;
  train.corpus.skip_bad_lines = encode.corpus.skip_bad_lines = on_bad_line == "skip";
  if (train_command->parsed()) {
    run_train(train);
  } else {
    encode.format = nsa::shard_format_of(format).value();
    run_encode(encode);
  }
  return nsa::ExitCode::kDone;
}

}  // namespace

int main(int argc, char** argv) {
  return nsa::run_program([&] { return run(argc, argv); });
}
