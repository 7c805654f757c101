#include "data/corpus.h"

#include "data/packing.h"
#include "support/errors.h"
#include "support/files.h"

namespace nsa::test {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;
using Texts = std::vector<std::string>;

struct Read {
  Texts texts;
  CorpusCounts counts;
};

Read read(const CorpusOptions& options) {
  Read all;
  all.counts = read_corpus(options, [&](std::string_view text) { all.texts.emplace_back(text); });
  return all;
}

CorpusOptions at(const Texts& paths) {
  CorpusOptions options;
  options.paths = paths;
  return options;
}

TEST(Corpus, ATextFileIsOneDocument) {
  const TempFolder folder;
  const Read all = read(at({folder.write("a.txt", "one\ntwo\n"), folder.write("b.odd", "three")}));
  EXPECT_EQ(all.texts, (Texts{"one\ntwo\n", "three"}));
  EXPECT_EQ(all.counts.files, 2);
  EXPECT_EQ(all.counts.documents, 2);
  EXPECT_EQ(all.counts.bytes, 13);
}

TEST(Corpus, AFolderIsSearchedBySuffixInOrder) {
  const TempFolder folder;
  folder.write("z.txt", "4");
  folder.write("b/a.txt", "2");
  folder.write("b/deep/x.jsonl", "{\"text\": \"3\"}\n");
  folder.write("a.pod", "1");
  folder.write("a.c", "no");
  CorpusOptions options = at({folder.path()});
  EXPECT_EQ(read(options).texts, (Texts{"2", "3", "4"}));
  options.suffixes = {"pod"};
  EXPECT_EQ(read(options).texts, (Texts{"1", "2", "3", "4"}));
  options.suffixes = {".pod", ".c"};
  EXPECT_EQ(read(options).texts, (Texts{"no", "1", "2", "3", "4"}));
}

TEST(Corpus, EachFileCountsOnce) {
  const TempFolder folder;
  const std::string path = folder.write("a.txt", "1");
  fs::create_symlink(path, folder.file("b.txt"));
  fs::create_directory_symlink(folder.path(), folder.file("circle"));
  EXPECT_EQ(read(at({path, folder.path(), folder.file("*.txt")})).texts, Texts{"1"});
}

TEST(Corpus, ALinkToAFileElsewhereIsFollowed) {
  const TempFolder folder;
  const TempFolder other;
  fs::create_symlink(other.write("real.txt", "1"), folder.file("link.txt"));
  EXPECT_EQ(read(at({folder.path()})).texts, Texts{"1"});
}

TEST(Corpus, PackedFilesReadLikePlainOnes) {
  const TempFolder folder;
  const std::string lines = "{\"text\": \"a\"}\n{\"text\": \"b\"}\n";
  folder.write("1.jsonl.gz", gzipped(lines));
  folder.write("2.jsonl.zst", zstd_packed(lines));
  folder.write("3.jsonl", lines);
  EXPECT_EQ(read(at({folder.path()})).texts, (Texts{"a", "b", "a", "b", "a", "b"}));
}

TEST(Corpus, JsonlSurvivesCrlfBomBlankLinesAndSeparators) {
  const TempFolder folder;
  const std::string path = folder.write("a.jsonl",
                                        "\xEF\xBB\xBF{\"text\": \"one\"}\r\n"
                                        "\r\n"
                                        "{\"text\": \"t\xE2\x80\xA8w\xC2\x85o\"}\n"
                                        "{\"text\": \"nul\\u0000\"}");
  const Read all = read(at({path}));
  EXPECT_EQ(all.texts, (Texts{"one", "t\xE2\x80\xA8w\xC2\x85o", "nul\0"s}));
  EXPECT_EQ(all.counts.empty, 1);
}

TEST(Corpus, OneByteOrderMarkIsTakenOff) {
  const TempFolder folder;
  const Read all = read(at({folder.write("a.txt", "\xEF\xBB\xBF\xEF\xBB\xBFx")}));
  EXPECT_EQ(all.texts, Texts{"\xEF\xBB\xBFx"});
}

TEST(Corpus, EmptyDocumentsAreSkippedAndCounted) {
  const TempFolder folder;
  const Read all = read(at({folder.write("a.txt", ""), folder.write("b.txt", "\xEF\xBB\xBF"),
                            folder.write("c.jsonl", "{\"text\": \"\"}\n{\"text\": \" \"}\n")}));
  EXPECT_EQ(all.texts, Texts{" "});
  EXPECT_EQ(all.counts.empty, 3);
}

TEST(Corpus, ABadLineIsAnErrorWithItsNumber) {
  const TempFolder folder;
  const std::string path = folder.write("a.jsonl", "{\"text\": \"a\"}\n\n{\"text\": \"b\n");
  expect_error(ExitCode::kData, {path + ":3: ", "not valid JSON", "--on-bad-line skip"},
               [&] { read(at({path})); });
}

TEST(Corpus, BadLinesAreSkippedAndCountedWhereAsked) {
  const TempFolder folder;
  CorpusOptions options = at({folder.write(
      "a.jsonl",
      "{\"text\": \"a\"}\nnot json\n{\"text\": 1}\n{\"other\": \"x\"}\n{\"text\": \"b\"}")});
  options.skip_bad_lines = true;
  const Read all = read(options);
  EXPECT_EQ(all.texts, (Texts{"a", "b"}));
  EXPECT_EQ(all.counts.bad_lines, 3);
}

TEST(Corpus, TheKeyOfTheTextCanBeNamed) {
  const TempFolder folder;
  CorpusOptions options = at({folder.write("a.ndjson", "{\"text\": \"no\", \"body\": \"yes\"}\n")});
  options.text_key = "body";
  EXPECT_EQ(read(options).texts, Texts{"yes"});
}

TEST(Corpus, InvalidUtf8IsReplacedAndCounted) {
  const TempFolder folder;
  const Read all =
      read(at({folder.write("a.txt", "caf\xE9"),
               folder.write("b.jsonl", "{\"text\": \"\xFF\"}\n{\"text\": \"ok\"}\n")}));
  EXPECT_EQ(all.texts, (Texts{"caf\xEF\xBF\xBD", "\xEF\xBF\xBD", "ok"}));
  EXPECT_EQ(all.counts.repaired, 2);
}

TEST(Corpus, WhatIsNotThereIsADataError) {
  const TempFolder folder;
  folder.write("a.c", "x");
  expect_error(ExitCode::kData, {folder.file("b.txt"), "a.c"},
               [&] { read(at({folder.file("b.txt")})); });
  expect_error(ExitCode::kData, {folder.path(), ".jsonl.zst", "--suffix"},
               [&] { read(at({folder.path()})); });
}

}  // namespace
}  // namespace nsa::test
