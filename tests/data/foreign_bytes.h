#pragma once

// Files of other programs, byte by byte from the tables of docs/formats.md, so that what our
// writers think of a format has no say.

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace nsa::test {

/// Appends numbers, little-endian, whatever the machine.
template <class T>
void append(std::string& bytes, T value) {
  auto bits = static_cast<std::uint64_t>(value);
  for (std::size_t i = 0; i < sizeof(T); ++i, bits >>= 8U) {
    bytes += static_cast<char>(bits & 0xFFU);
  }
}

template <class T>
void put(std::string& bytes, std::size_t at, T value) {
  std::string number;
  append(number, value);
  bytes.replace(at, number.size(), number);
}

/// Tokens of type Id, one behind the other.
template <class Id>
std::string raw_tokens(const std::vector<std::int64_t>& ids) {
  std::string bytes;
  for (const std::int64_t id : ids) append(bytes, static_cast<Id>(id));
  return bytes;
}

/// A shard of llm.c: uint16 with magic 20240520 and version 1, uint32 with 20240801 and 7.
template <class Id>
std::string llmc_bytes(const std::vector<std::int64_t>& ids) {
  std::string bytes;
  append<std::int32_t>(bytes, sizeof(Id) == 2 ? 20240520 : 20240801);
  append<std::int32_t>(bytes, sizeof(Id) == 2 ? 1 : 7);
  append<std::int32_t>(bytes, static_cast<std::int32_t>(ids.size()));
  bytes.resize(1024, '\0');
  return bytes + raw_tokens<Id>(ids);
}

/// A Megatron index of sequences with these lengths, whose tokens have `id_bytes` bytes, and of the
/// documents with these boundaries.
inline std::string megatron_index(int type, std::int64_t id_bytes,
                                  const std::vector<std::int32_t>& lengths,
                                  const std::vector<std::int64_t>& boundaries) {
  std::string bytes("MMIDIDX\0\0", 9);
  append<std::uint64_t>(bytes, 1);
  append<std::uint8_t>(bytes, static_cast<std::uint8_t>(type));
  append<std::uint64_t>(bytes, lengths.size());
  append<std::uint64_t>(bytes, boundaries.size());
  for (const std::int32_t length : lengths) append(bytes, length);
  std::int64_t pointer = 0;
  for (const std::int32_t length : lengths) {
    append(bytes, pointer);
    pointer += length * id_bytes;
  }
  for (const std::int64_t boundary : boundaries) append(bytes, boundary);
  return bytes;
}

}  // namespace nsa::test
