#include "train/checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <vector>

#include "core/error.h"
#include "core/format.h"
#include "data/atomic_file.h"
#include "train/durable.h"
#include "train/version.h"

namespace nsa {
namespace fs = std::filesystem;
namespace {

constexpr const char* kTensorFile = "rank_00000.bin";
// What to do about a checkpoint that cannot be used.
constexpr const char* kAdvice = "; restore it from a copy, or name another one with --resume";
constexpr std::int64_t kPieceBytes = std::int64_t{4} << 20;

/// Elements of a bucket up to the end of its last parameter: its tail padding is not stored, since
/// it depends on how many ranks share the bucket.
std::int64_t used_elements(const Layout& layout, std::int64_t bucket) {
  std::int64_t used = 0;
  for (const Parameter& parameter : layout.parameters()) {
    if (parameter.bucket == bucket) used = std::max(used, parameter.offset + parameter.size());
  }
  return used;
}

/// Appends device memory to a file, piece by piece. Returns where it begins.
std::int64_t append(DurableFile& file, const Tensor& tensor, Device& device,
                    std::vector<char>& piece) {
  const std::int64_t at = file.bytes();
  for (std::int64_t done = 0; done < tensor.bytes(); done += kPieceBytes) {
    const std::int64_t bytes = std::min(kPieceBytes, tensor.bytes() - done);
    device.copy_to_host(piece.data(), static_cast<const char*>(tensor.data()) + done, bytes);
    file.write(piece.data(), bytes);
  }
  return at;
}

void fetch(std::ifstream& file, std::int64_t offset, const Tensor& tensor, Device& device,
           std::vector<char>& piece) {
  file.seekg(offset);
  for (std::int64_t done = 0; done < tensor.bytes(); done += kPieceBytes) {
    const std::int64_t bytes = std::min(kPieceBytes, tensor.bytes() - done);
    if (!file.read(piece.data(), bytes))
      fail_checkpoint(
          "a checkpoint file ends too early, while it is read; let nothing else write to it");
    device.copy_from_host(static_cast<char*>(tensor.data()) + done, piece.data(), bytes);
  }
}

/// Writes a file of the checkpoint and enters it in the manifest.
void write_text(const fs::path& folder, const char* name, const std::string& text,
                Manifest& manifest) {
  DurableFile file(folder / name);
  file.write(text.data(), static_cast<std::int64_t>(text.size()));
  file.finish();
  manifest.files.push_back({.name = name, .bytes = file.bytes(), .checksum = file.checksum()});
}

Manifest write_tensors(const fs::path& folder, const ParameterStore& store, Device& device) {
  const Layout& layout = store.layout();
  Manifest manifest;
  manifest.layout = layout.fingerprint();
  manifest.dtype = store.master_dtype();
  manifest.moments = store.moment_dtype();
  std::vector<char> piece(static_cast<std::size_t>(kPieceBytes));
  DurableFile file(folder / kTensorFile);
  for (std::size_t i = 0; i < layout.buckets().size(); ++i) {
    const Bucket& bucket = layout.buckets()[i];
    const std::int64_t used = used_elements(layout, static_cast<std::int64_t>(i));
    ManifestRange range{.bucket = bucket.name, .begin = 0, .end = used, .file = kTensorFile};
    const auto part = [&](const Tensor& flat) {
      return append(file, flat.slice(bucket.begin, bucket.begin + used), device, piece);
    };
    range.master = part(store.master());
    range.m = part(store.m());
    range.v = part(store.v());
    manifest.ranges.push_back(range);
  }
  file.finish();
  manifest.files.push_back(
      {.name = kTensorFile, .bytes = file.bytes(), .checksum = file.checksum()});
  for (std::size_t i = 0; i < layout.parameters().size(); ++i) {
    const Parameter& parameter = layout.parameters()[i];
    manifest.parameters.push_back(
        {.name = parameter.name, .shape = parameter.shape, .updates = store.updates()[i]});
  }
  return manifest;
}

/// The new folder takes its name; an older one of that name (a run that went back and came here
/// again) steps aside first and goes afterwards, so that at no moment there is none.
void move_into_place(const fs::path& temporary, const fs::path& target) {
  const fs::path aside = target.string() + ".old";
  std::error_code error;
  const fs::file_status standing = fs::symlink_status(target, error);
  if (fs::exists(standing) && !fs::is_directory(standing)) {
    fail_checkpoint("cannot create " + target.string() +
                    ": a file that is not of this program has that name; move it away");
  }
  if (fs::exists(standing)) {
    fs::remove_all(aside, error);
    fs::rename(target, aside, error);
    if (error)
      fail_checkpoint("cannot replace " + target.string() + ": " +
                      write_advice(error.value(), kRunPlaces));
  }
  fs::rename(temporary, target, error);
  if (error) {
    std::error_code ignored;
    fs::rename(aside, target, ignored);
    fail_checkpoint("cannot create " + target.string() + ": " +
                    write_advice(error.value(), kRunPlaces));
  }
  fs::remove_all(aside, error);
}

/// Throws Error where a file of the checkpoint does not stand there as a file.
void check_stands(const fs::path& checkpoint, const std::string& name) {
  std::error_code error;
  const fs::file_status status = fs::status(checkpoint / name, error);
  if (status.type() == fs::file_type::not_found) fail_checkpoint(name + " is missing");
  if (error) fail_checkpoint(name + ": " + error.message());
  if (!fs::is_regular_file(status)) fail_checkpoint(name + " is not a regular file");
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t extent : shape) {
    text += (text.empty() ? "" : ", ") + std::to_string(extent);
  }
  return "[" + text + "]";
}

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  const std::string digits = std::to_string(step);
  constexpr std::size_t kDigits = 8;
  return "step_" + std::string(kDigits - std::min(kDigits, digits.size()), '0') + digits;
}

std::int64_t checkpoint_bytes(const Layout& layout, DType master, DType moments) {
  constexpr std::int64_t kManifestBytesPerParameter = 256;
  return layout.size() * (size_of(master) + 2 * size_of(moments)) +
         kManifestBytesPerParameter * static_cast<std::int64_t>(layout.parameters().size()) +
         (std::int64_t{1} << 16);
}

std::int64_t checkpoint_bytes(const ParameterStore& store) {
  return checkpoint_bytes(store.layout(), store.master_dtype(), store.moment_dtype());
}

fs::path save_checkpoint(const fs::path& folder, const RunState& state, const ParameterStore& store,
                         Device& device) {
  fs::path target = folder / checkpoint_name(state.step);
  const fs::path temporary = target.string() + ".tmp";
  std::error_code error;
  fs::remove_all(temporary, error);
  fs::create_directories(temporary, error);
  if (error)
    fail_checkpoint("cannot create " + temporary.string() + ": " +
                    write_advice(error.value(), kRunPlaces));
  try {
    Manifest manifest = write_tensors(temporary, store, device);
    manifest.library_version = library_version();
    manifest.state = state;
    write_text(temporary, kResolvedConfig, state.config_yaml, manifest);
    const std::string text = to_json(manifest);
    DurableFile file(temporary / "manifest.json");
    file.write(text.data(), static_cast<std::int64_t>(text.size()));
    file.finish();
    sync_folder(temporary);
    move_into_place(temporary, target);
    sync_folder(folder);
  } catch (const std::exception&) {
    fs::remove_all(temporary, error);  // gives the room back that the older checkpoints may need
    throw;
  }
  return target;
}

Manifest verify_checkpoint(const fs::path& checkpoint) {
  const std::string where = "checkpoint " + checkpoint.string() + ": ";
  try {
    if (!fs::is_directory(checkpoint)) fail_checkpoint("there is no such folder");
    check_stands(checkpoint, "manifest.json");
    Manifest manifest = parse_manifest(read_file(checkpoint / "manifest.json"));
    for (const ManifestFile& file : manifest.files) {
      const fs::path path = checkpoint / file.name;
      check_stands(checkpoint, file.name);
      const auto bytes = static_cast<std::int64_t>(fs::file_size(path));
      if (bytes != file.bytes) {
        fail_checkpoint(
            fmt::format("{} has {} bytes, but the manifest says {}", file.name, bytes, file.bytes));
      }
      if (file_checksum(path) != file.checksum) {
        fail_checkpoint(file.name + " does not match the checksum in the manifest");
      }
    }
    return manifest;
  } catch (const Error& error) {
    fail_checkpoint(where + error.what() + kAdvice);
  } catch (const fs::filesystem_error& error) {
    fail_checkpoint(where + error.code().message() + kAdvice);
  }
}

void check_same_model(const Manifest& manifest, const ParameterStore& store) {
  const Layout& layout = store.layout();
  const std::string advice =
      "; restore the model and attention keys, or choose another run.out_dir for a new run";
  const auto& ours = layout.parameters();
  for (std::size_t i = 0; i < std::max(ours.size(), manifest.parameters.size()); ++i) {
    if (i >= manifest.parameters.size()) {
      fail_checkpoint("the checkpoint has no parameter " + ours[i].name + advice);
    }
    const ManifestParameter& theirs = manifest.parameters[i];
    if (i >= ours.size() || ours[i].name != theirs.name) {
      fail_checkpoint(
          fmt::format("the checkpoint's parameter {} is {}, but the configuration's is {}{}", i,
                      theirs.name, i < ours.size() ? ours[i].name : "not there", advice));
    }
    if (ours[i].shape != theirs.shape) {
      fail_checkpoint(
          fmt::format("parameter {} has shape {} in the checkpoint, but {} in the "
                      "configuration{}",
                      theirs.name, shape_text(theirs.shape), shape_text(ours[i].shape), advice));
    }
  }
  if (manifest.layout != layout.fingerprint()) {
    fail_checkpoint("the checkpoint's parameters are laid out in another way" + advice);
  }
  if (manifest.dtype != store.master_dtype()) {
    fail_checkpoint(
        fmt::format("the checkpoint holds {}, but the run computes in {}; set "
                    "precision.compute accordingly",
                    name_of(manifest.dtype), name_of(store.master_dtype())));
  }
  if (manifest.moments != store.moment_dtype()) {
    fail_checkpoint(fmt::format(
        "the checkpoint holds AdamW's moments in {}, but precision.optim_states asks for {}; set "
        "it "
        "to {}, or choose another run.out_dir for a new run",
        name_of(manifest.moments), name_of(store.moment_dtype()), name_of(manifest.moments)));
  }
}

void load_checkpoint(const fs::path& checkpoint, const Manifest& manifest, ParameterStore& store,
                     Device& device) {
  const Layout& layout = store.layout();
  std::vector<char> piece(static_cast<std::size_t>(kPieceBytes));
  for (std::size_t i = 0; i < layout.buckets().size(); ++i) {
    const Bucket& bucket = layout.buckets()[i];
    std::int64_t loaded = 0;
    for (const ManifestRange& range : manifest.ranges) {
      if (range.bucket != bucket.name) continue;
      std::ifstream file(checkpoint / range.file, std::ios::binary);
      if (!file) fail_checkpoint("cannot read " + (checkpoint / range.file).string() + kAdvice);
      const auto part = [&](const Tensor& flat, std::int64_t offset) {
        fetch(file, offset, flat.slice(bucket.begin + range.begin, bucket.begin + range.end),
              device, piece);
      };
      part(store.master(), range.master);
      part(store.m(), range.m);
      part(store.v(), range.v);
      loaded += range.end - range.begin;
    }
    if (loaded != used_elements(layout, static_cast<std::int64_t>(i))) {
      fail_checkpoint("checkpoint " + checkpoint.string() + " does not hold all of bucket " +
                      bucket.name + kAdvice);
    }
  }
  for (std::size_t i = 0; i < manifest.parameters.size(); ++i) {
    store.updates()[i] = manifest.parameters[i].updates;
  }
  store.publish();
}

}  // namespace nsa
