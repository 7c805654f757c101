#pragma once

// One NSA attention problem on two backends: shapes that a tiled kernel gets wrong first.

#include <cmath>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "kernels/parity.h"
#include "ops/nsa_attention.h"
#include "ops/nsa_compress.h"

namespace nsa::test {

struct NsaCase {
  std::string name{};
  std::vector<std::int64_t> lengths = {150, 1, 0, 67, 200};
  std::int64_t heads = 16, kv_heads = 1, head_dim = 64, v_dim = 64;
  NsaGeometry geometry{.rate = 4, .overlap = 2, .select_block = 16, .top_n = 5};

  std::int64_t tokens() const {
    std::int64_t sum = 0;
    for (const std::int64_t length : lengths) sum += length;
    return sum;
  }
  std::int64_t compressed() const { return compressed_rows(OwnedDocuments(lengths), geometry); }
  std::int64_t most_blocks() const {
    std::int64_t most = 0;
    for (const std::int64_t length : lengths) most = std::max(most, length);
    return geometry.selection_blocks(static_cast<std::int32_t>(most));
  }
  double scale() const { return 1.0 / std::sqrt(static_cast<double>(head_dim)); }
};

inline std::ostream& operator<<(std::ostream& out, const NsaCase& c) {
  return out << c.name;
}

inline std::vector<NsaCase> nsa_cases() {
  return {
      {.name = "defaults"},
      {.name = "one_head_a_group", .heads = 3, .kv_heads = 3},
      {.name = "two_heads_a_group", .heads = 4, .kv_heads = 2, .head_dim = 32, .v_dim = 32},
      {.name = "four_heads_a_group", .heads = 8, .kv_heads = 2, .head_dim = 128, .v_dim = 128},
      {.name = "eight_heads_a_group",
       .heads = 16,
       .kv_heads = 2,
       .geometry = {.rate = 16, .overlap = 2, .select_block = 64, .top_n = 3}},
      {.name = "twelve_heads_a_group",
       .heads = 12,
       .geometry = {.rate = 8, .overlap = 2, .select_block = 32, .top_n = 4}},
      {.name = "five_heads_a_group", .heads = 10, .kv_heads = 2},
      {.name = "twenty_heads_a_group", .heads = 20},
      {.name = "forty_heads_a_group",
       .lengths = {90, 33},
       .heads = 40,
       .head_dim = 16,
       .v_dim = 16},
      {.name = "wide_heads",
       .heads = 32,
       .kv_heads = 2,
       .head_dim = 128,
       .v_dim = 128,
       .geometry = {.rate = 16, .overlap = 2, .select_block = 64, .top_n = 4}},
      {.name = "keys_wider_than_values", .lengths = {100, 37}, .head_dim = 192, .v_dim = 128},
      {.name = "widest_heads", .lengths = {100, 37}, .heads = 8, .head_dim = 256, .v_dim = 256},
      {.name = "padded_dims", .lengths = {100, 37}, .heads = 8, .head_dim = 40, .v_dim = 72},
      {.name = "odd_dims", .lengths = {50, 37}, .heads = 4, .head_dim = 6, .v_dim = 10},
      {.name = "no_compression",
       .lengths = {150, 40},
       .heads = 8,
       .geometry = {.rate = 1, .overlap = 2, .select_block = 32, .top_n = 4}},
      {.name = "no_compression_long_blocks",
       .lengths = {300, 140},
       .heads = 4,
       .geometry = {.rate = 1, .select_block = 128, .top_n = 3}},
      {.name = "blocks_of_24",
       .heads = 4,
       .geometry = {.rate = 4, .overlap = 3, .select_block = 24, .top_n = 4}},
      {.name = "long_blocks",
       .lengths = {500, 129},
       .heads = 4,
       .geometry = {.rate = 16, .overlap = 4, .select_block = 128, .top_n = 3}},
      {.name = "more_slots_than_blocks",
       .heads = 8,
       .kv_heads = 2,
       .geometry = {.rate = 4, .overlap = 2, .select_block = 16, .top_n = 40}},
      {.name = "forced_blocks_alone",
       .geometry = {.rate = 4, .overlap = 2, .select_block = 16, .top_n = 3}},
      {.name = "no_overlap",
       .heads = 4,
       .geometry =
           {.rate = 8, .overlap = 1, .select_block = 16, .top_n = 6, .initial = 0, .local = 1}},
      {.name = "union_of_several_batches",
       .lengths = {1400},
       .heads = 1,
       .head_dim = 16,
       .v_dim = 16,
       .geometry = {.rate = 2, .overlap = 2, .select_block = 4, .top_n = 30}},
  };
}

}  // namespace nsa::test
