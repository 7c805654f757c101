#pragma once

// A configuration while it is being read: what may be left out is still empty.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"

namespace nsa::settings {

/// An entry of schedule.stages as written.
struct StageDraft {
  std::string where;                          ///< of the entry
  std::map<std::string, std::string> places;  ///< where its keys were set
  StepsOrTokens from;
  std::optional<std::int64_t> seq_len;
  std::optional<std::int64_t> rate;
  bool auto_rate = false;  ///< `rate: auto`; `rate` is then empty
  std::optional<std::int64_t> tokens_per_step;
  std::optional<std::int64_t> micro_batch;  ///< empty: auto, or none of its own (see places)
  std::int64_t rewarm = 0;
};

struct Draft {
  Config config;  ///< its resolved fields are not filled in yet
  std::optional<std::int64_t> head_dim, v_head_dim, rope_dim;
  std::optional<std::int64_t> compress_hidden;
  std::vector<StageDraft> stages;
  std::string file;                           ///< as the user named it
  std::map<std::string, std::string> places;  ///< where a key was set last; none: a default

  /// What a message about `key` begins with.
  std::string where(const std::string& key) const {
    const auto found = places.find(key);
    return found == places.end() ? file : found->second;
  }
};

}  // namespace nsa::settings
