#pragma once

// How CPU ops cut their work: by shape alone, so that results never depend on the threads.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "core/parallel.h"

namespace nsa::cpu {

/// [0, count) cut into parts of nearly equal size.
struct Parts {
  std::int64_t count = 0;
  std::int64_t size = 1;  ///< of every part but the last

  /// Parts of at most `most`, a multiple of `unit` each except the last.
  static Parts of(std::int64_t count, std::int64_t most, std::int64_t unit = 1) {
    const std::int64_t parts = std::max<std::int64_t>(1, (count + most - 1) / most);
    const std::int64_t even = std::max<std::int64_t>(1, (count + parts - 1) / parts);
    return {.count = count, .size = std::min(most, (even + unit - 1) / unit * unit)};
  }
  std::int64_t parts() const { return (count + size - 1) / size; }
  std::int64_t begin(std::int64_t part) const { return part * size; }
  std::int64_t end(std::int64_t part) const { return std::min(count, (part + 1) * size); }
};

struct Tile {
  std::int64_t row = 0, rows = 0;
  std::int64_t column = 0, columns = 0;
};

struct Tiles {
  Parts rows;
  Parts columns;
  std::int64_t count() const { return rows.parts() * columns.parts(); }
};

/// Tiles of a matrix product's result: 256 x 512, where one call is as fast as a larger one, or
/// smaller ones until there are enough to share out. Under 64 x 128 a call loses a quarter of its
/// speed.
inline Tiles matmul_tiles(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kWanted = 8;
  constexpr std::int64_t kUnit = 16;
  std::int64_t most_rows = 256;
  std::int64_t most_columns = 512;
  while (true) {
    const Tiles tiles = {.rows = Parts::of(rows, most_rows, kUnit),
                         .columns = Parts::of(columns, most_columns, kUnit)};
    if (tiles.count() >= kWanted || most_rows <= 64) return tiles;
    // 256 x 512, 256 x 256, 128 x 256, 128 x 128, 64 x 128
    if (most_columns > most_rows) {
      most_columns /= 2;
    } else {
      most_rows /= 2;
    }
  }
}

/// body(Tile) for every tile, side by side.
template <class Body>
void for_each_tile(WorkerPool& pool, const Tiles& tiles, const Body& body) {
  const std::int64_t across = tiles.columns.parts();
  pool.for_each(tiles.count(), [&](std::int64_t index, int) {
    const std::int64_t r = index / across;
    const std::int64_t c = index % across;
    body(Tile{.row = tiles.rows.begin(r),
              .rows = tiles.rows.end(r) - tiles.rows.begin(r),
              .column = tiles.columns.begin(c),
              .columns = tiles.columns.end(c) - tiles.columns.begin(c)});
  });
}

/// body(begin, end) for every part, side by side.
template <class Body>
void for_each_part(WorkerPool& pool, const Parts& parts, const Body& body) {
  pool.for_each(parts.parts(),
                [&](std::int64_t part, int) { body(parts.begin(part), parts.end(part)); });
}

/// Rows cut so that a part holds about 16 Ki elements: work enough to outweigh its start.
inline Parts row_parts(std::int64_t rows, std::int64_t row_size) {
  constexpr std::int64_t kElements = 16384;
  return Parts::of(rows,
                   std::max<std::int64_t>(1, kElements / std::max<std::int64_t>(1, row_size)));
}

/// sum[c] += partials[0][c] + partials[1][c] + ..., in that order and in double.
template <class T>
void add_partials(WorkerPool& pool, const T* partials, std::int64_t count, std::int64_t columns,
                  T* sum) {
  constexpr std::int64_t kColumns = 256;
  for_each_part(pool, Parts::of(columns, kColumns), [&](std::int64_t begin, std::int64_t end) {
    std::array<double, kColumns> total{};
    for (std::int64_t part = 0; part < count; ++part) {
      const T* partial = partials + part * columns + begin;
      for (std::int64_t c = 0; c < end - begin; ++c) {
        total[static_cast<std::size_t>(c)] += static_cast<double>(partial[c]);
      }
    }
    for (std::int64_t c = begin; c < end; ++c) {
      sum[c] =
          static_cast<T>(static_cast<double>(sum[c]) + total[static_cast<std::size_t>(c - begin)]);
    }
  });
}

}  // namespace nsa::cpu
