#pragma once

// Corpus: the text files that a user names, read as documents.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace nsa {

struct CorpusOptions {
  /// Files, folders (searched whole, by suffix) and globs.
  std::vector<std::string> paths;
  /// Suffixes that folders are searched for beside .txt, .jsonl, .jsonl.gz and .jsonl.zst.
  std::vector<std::string> suffixes;
  std::string text_key = "text";  ///< where a JSONL object holds its text
  bool skip_bad_lines = false;    ///< skip and count JSONL lines that cannot be read, or stop there
};

struct CorpusCounts {
  std::int64_t files = 0;
  std::int64_t documents = 0;  ///< handed out
  std::int64_t bytes = 0;      ///< of their text, repaired
  std::int64_t empty = 0;      ///< documents and lines without text, skipped
  std::int64_t bad_lines = 0;  ///< skipped
  std::int64_t repaired = 0;   ///< documents in which invalid UTF-8 was replaced by U+FFFD
};

/// The files in the order in which they are read: sorted within each path, each file once even
/// where several paths or links lead to it. Throws Error (code 3) for a path that names nothing.
std::vector<std::string> list_text_files(const CorpusOptions& options);

/// Calls `document` for each document: a text file is one, and so is each line of a .jsonl file
/// (.ndjson too). gzip and zstd are unpacked. One byte order mark at the start of a file is taken
/// off. Throws Error (code 3) naming file and line for what cannot be read.
CorpusCounts read_corpus(const CorpusOptions& options,
                         const std::function<void(std::string_view text)>& document);

}  // namespace nsa
