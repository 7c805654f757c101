#include "data/corpus.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/format.h"
#include "data/byte_source.h"
#include "data/globs.h"
#include "data/jsonl.h"
#include "data/utf8.h"

namespace nsa {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// Text of another encoding would come through as one replacement after the other.
void refuse_utf16(std::string_view start, const std::string& path) {
  if (!start.starts_with("\xFF\xFE") && !start.starts_with("\xFE\xFF")) return;
  fail_data(path +
            ": begins with the byte order mark of UTF-16, wanted UTF-8; convert it, for example "
            "with iconv -f UTF-16 -t UTF-8");
}

std::vector<std::string> all_suffixes(const CorpusOptions& options) {
  std::vector<std::string> all = {".txt", ".jsonl", ".jsonl.gz", ".jsonl.zst"};
  for (const std::string& suffix : options.suffixes) {
    all.push_back(suffix.starts_with(".") ? suffix : "." + suffix);
  }
  return all;
}

/// The files below `folder` with one of the suffixes, sorted by path.
std::vector<std::string> search_folder(const std::string& folder,
                                       const std::vector<std::string>& suffixes) {
  std::vector<std::string> found;
  std::error_code error;
  fs::recursive_directory_iterator at(folder, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    const std::string path = at->path().string();
    const bool wanted = std::any_of(suffixes.begin(), suffixes.end(),
                                    [&](const auto& suffix) { return path.ends_with(suffix); });
    if (!wanted) continue;
    // A link to a file counts as that file; links to folders are not followed, they may be circles.
    std::error_code broken;
    const fs::file_status status = at->status(broken);
    if (broken || !fs::exists(status)) {
      fail_data(path + ": is a link that leads to no file; mend or remove it");
    }
    if (fs::is_regular_file(status)) found.push_back(path);
  }
  if (error) fail_data(folder + ": cannot be searched: " + error.message());
  if (found.empty()) {
    std::string list;
    for (const std::string& suffix : suffixes) list += (list.empty() ? "" : ", ") + suffix;
    fail_data(folder + ": is a folder without files that end in " + list +
              "; name other suffixes with --suffix");
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool is_jsonl(std::string_view path) {
  for (const std::string_view packed : {".gz", ".zst"}) {
    if (path.ends_with(packed)) path.remove_suffix(packed.size());
  }
  return path.ends_with(".jsonl") || path.ends_with(".ndjson");
}

/// Reads one file after the other and keeps the counts.
class CorpusReader {
 public:
  CorpusReader(const CorpusOptions& options, const std::function<void(std::string_view)>& document)
      : options_(options), document_(document) {}

  void read_text(const std::string& path) {
    const auto source = open_bytes(path);
    constexpr std::int64_t kChunk = std::int64_t{1} << 20;
    std::string text;
    while (true) {
      const std::size_t size = text.size();
      text.resize(size + kChunk);
      const std::int64_t got = source->read(text.data() + size, kChunk);
      text.resize(size + static_cast<std::size_t>(got));
      if (got == 0) break;
    }
    std::string_view view = text;
    refuse_utf16(view, path);
    if (view.starts_with(kByteOrderMark)) view.remove_prefix(kByteOrderMark.size());
    repaired_.clear();
    const bool replaced = append_repaired(view, repaired_) > 0;
    take(repaired_, replaced);
  }

  void read_jsonl(const std::string& path) {
    LineReader lines(open_bytes(path));
    std::string line;
    for (std::int64_t number = 1; lines.next(line); ++number) {
      std::string_view view = line;
      if (number == 1) refuse_utf16(view, path);
      if (number == 1 && view.starts_with(kByteOrderMark)) {
        view.remove_prefix(kByteOrderMark.size());
      }
      if (view.ends_with('\r')) view.remove_suffix(1);
      if (view.find_first_not_of(" \t\r") == std::string_view::npos) {
        ++counts.empty;
        continue;
      }
      repaired_.clear();
      const bool replaced = append_repaired(view, repaired_) > 0;
      JsonlText found = text_of_line(repaired_, options_.text_key);
      if (!found.problem.empty()) {
        if (!options_.skip_bad_lines) {
          fail_data(
              fmt::format("{}:{}: {}; repair the line, or skip such lines with "
                          "--on-bad-line skip",
                          path, number, found.problem));
        }
        ++counts.bad_lines;
        continue;
      }
      take(found.text, replaced);
    }
  }

  CorpusCounts counts;  // NOLINT(readability-identifier-naming): the result

 private:
  void take(std::string_view text, bool replaced) {
    if (text.empty()) {
      ++counts.empty;
      return;
    }
    if (replaced) ++counts.repaired;
    ++counts.documents;
    counts.bytes += static_cast<std::int64_t>(text.size());
    document_(text);
  }

  const CorpusOptions& options_;
  const std::function<void(std::string_view)>& document_;
  std::string repaired_;
};

}  // namespace

std::vector<std::string> list_text_files(const CorpusOptions& options) {
  const std::vector<std::string> suffixes = all_suffixes(options);
  std::vector<std::string> files;
  std::set<fs::path> seen;
  std::error_code error;
  for (const std::string& pattern : options.paths) {
    for (const std::string& path : expand_glob(pattern)) {
      const std::vector<std::string> found = fs::is_directory(path, error)
                                                 ? search_folder(path, suffixes)
                                                 : std::vector<std::string>{path};
      for (const std::string& file : found) {
        // A name that cannot be followed is told when it is opened.
        const fs::path target = fs::weakly_canonical(file, error);
        if (seen.insert(error ? fs::path(file) : target).second) files.push_back(file);
      }
    }
  }
  return files;
}

CorpusCounts read_corpus(const CorpusOptions& options,
                         const std::function<void(std::string_view text)>& document) {
  CorpusReader reader(options, document);
  for (const std::string& path : list_text_files(options)) {
    ++reader.counts.files;
    if (is_jsonl(path)) {
      reader.read_jsonl(path);
    } else {
      reader.read_text(path);
    }
  }
  return reader.counts;
}

}  // namespace nsa
