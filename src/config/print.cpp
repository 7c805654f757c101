// Config back to text: YAML, fingerprint, differences, reference.

#include "config/parse.h"
#include "config/resolve.h"
#include "config/schema.h"
#include "config/yaml_reader.h"
#include "core/checksum.h"
#include "core/format.h"

namespace nsa {
namespace {

using settings::Draft;
using settings::draft_of;
using settings::Key;
using settings::schema;

std::string indent(std::size_t depth) {
  return std::string(2 * depth, ' ');
}

std::vector<std::string> split(const std::string& name) {
  std::vector<std::string> parts(1);
  for (const char letter : name) {
    if (letter == '.') {
      parts.emplace_back();
    } else {
      parts.back() += letter;
    }
  }
  return parts;
}

/// Escapes what a cell of a Markdown table cannot hold.
std::string cell(const std::string& text) {
  std::string escaped;
  for (const char letter : text) {
    if (letter == '|') escaped += '\\';
    escaped += letter;
  }
  return escaped;
}

template <class Target>
std::string reference_row(const settings::KeyOf<Target>& key, const Target& initial) {
  return fmt::format("| `{}` | {} | `{}` | {} | {} | {} |\n", key.rules.name, cell(key.type),
                     key.write(initial), cell(key.rules.unit), key.rules.shared ? "yes" : "no",
                     cell(key.doc));
}

const char* const kReferenceHead =
    "# Configuration\n\n"
    "Every key of a run's YAML file. The table is written from the schema in `src/config/`; a test "
    "keeps it\nthe same.\n\n"
    "- `--override a.b=c` sets one key; `c` is YAML, the last one wins, and one of `train.steps`, "
    "`train.epochs`\n  and `train.tokens` replaces the others.\n"
    "- Whole numbers marked (K, M, B) may end in K, M or B: thousands, millions, billions. 500M is "
    "500,000,000.\n"
    "- `${env:NAME}` in a value is replaced by that environment variable; inside `{...}` and "
    "`[...]` it has to\n  stand in quotes.\n"
    "- Paths count from the folder of the file, those of an override from the working directory. "
    "`run.out_dir`\n  counts from the working directory, `checkpoint.dir` and `log.metrics` count "
    "from `run.out_dir`.\n"
    "- A preset sets `model.*`; keys beside it win.\n"
    "- Shared: part of the configuration's fingerprint, which all ranks of a run must agree on.\n";

const char* const kStagesHead =
    "\n## Entries of schedule.stages\n\n"
    "What an entry leaves out stays as it was, `rate: auto` included; the first entry starts from "
    "`train.seq_len`,\n`train.tokens_per_step` and `attention.compress.rate`. `micro_batch` and "
    "`rewarm` hold for their own stage\nalone. Steps and tokens may be mixed: each stage must "
    "begin "
    "at least one step after the one before it.\n\n"
    "| key | type | default | unit | shared | meaning |\n|---|---|---|---|---|---|\n";

}  // namespace

std::string print_config(const Config& config) {
  const Draft draft = draft_of(config);
  std::string text;
  std::vector<std::string> open;  // the sections that the last line stands in
  for (const Key& key : schema()) {
    std::vector<std::string> parts = split(key.rules.name);
    const std::string leaf = parts.back();
    parts.pop_back();
    std::size_t depth = 0;
    while (depth < std::min(open.size(), parts.size()) && open[depth] == parts[depth]) ++depth;
    for (; depth < parts.size(); ++depth) text += indent(depth) + parts[depth] + ":\n";
    open = parts;
    text += indent(parts.size()) + leaf + ": " + key.write(draft) + "\n";
  }
  return text;
}

settings::Value config_tree(const Config& config) {
  return settings::read_yaml_text(print_config(config), "the resolved configuration");
}

std::uint32_t config_fingerprint(const Config& config) {
  const Draft draft = draft_of(config);
  std::string text;
  for (const Key& key : schema()) {
    if (!key.rules.shared) continue;
    const auto& write = key.write_shared ? key.write_shared : key.write;
    text += key.rules.name + ": " + write(draft) + "\n";
  }
  return crc32(0, text.data(), static_cast<std::int64_t>(text.size()));
}

std::vector<std::string> config_diff(const Config& before, const Config& after) {
  const Draft old_draft = draft_of(before);
  const Draft new_draft = draft_of(after);
  std::vector<std::string> lines;
  for (const Key& key : schema()) {
    const std::string was = key.write(old_draft);
    const std::string is = key.write(new_draft);
    if (was != is) lines.push_back(fmt::format("{}: {} -> {}", key.rules.name, was, is));
  }
  return lines;
}

std::string config_reference() {
  std::string text = kReferenceHead;
  std::string section;
  for (const Key& key : schema()) {
    const std::string top = split(key.rules.name).front();
    if (top != section) {
      section = top;
      text += fmt::format(
          "\n## {}\n\n| key | type | default | unit | shared | meaning "
          "|\n|---|---|---|---|---|---|\n",
          section);
    }
    text += reference_row(key, Draft{});
  }
  text += kStagesHead;
  for (const settings::StageKey& key : settings::stage_schema()) {
    text += reference_row(key, settings::StageDraft{});
  }
  return text;
}

}  // namespace nsa
