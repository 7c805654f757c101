#pragma once

// The formats of token shards, by the names that users write.

#include <optional>
#include <string>
#include <string_view>

namespace nsa {

enum class ShardFormat { kNsa, kLlmc, kMegatron };

/// "nsa", "llmc", "megatron".
std::string shard_format_name(ShardFormat format);
/// Empty for any other word, "auto" among them.
std::optional<ShardFormat> shard_format_of(std::string_view name);

}  // namespace nsa
