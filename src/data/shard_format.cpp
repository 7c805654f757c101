#include "data/shard_format.h"

#include <array>

namespace nsa {
namespace {

constexpr std::array<std::string_view, 3> kNames = {"nsa", "llmc", "megatron"};

}  // namespace

std::string shard_format_name(ShardFormat format) {
  return std::string(kNames.at(static_cast<std::size_t>(format)));
}

std::optional<ShardFormat> shard_format_of(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<ShardFormat>(i);
  }
  return std::nullopt;
}

}  // namespace nsa
