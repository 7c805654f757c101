// Initial weights, by counter-based random numbers.

#include <algorithm>
#include <vector>

#include "core/parallel.h"
#include "core/philox.h"
#include "params/store.h"

namespace nsa {
namespace {

// Elements made on the host before they are copied to the device, and by one worker at a time.
// Even, so that no pair of normal numbers spans two pieces.
constexpr std::int64_t kStaged = std::int64_t{1} << 20;
constexpr std::int64_t kPiece = std::int64_t{1} << 14;

/// FNV-1a: the same number for a name on every machine, in every version.
std::uint64_t hash_of(const std::string& name) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const char letter : name) {
    hash ^= static_cast<unsigned char>(letter);
    hash *= 0x100000001B3U;
  }
  return hash;
}

/// The finaliser of SplitMix64: spreads small differences of a seed over all bits.
std::uint64_t mix(std::uint64_t bits) {
  bits += 0x9E3779B97F4A7C15U;
  bits = (bits ^ (bits >> 30U)) * 0xBF58476D1CE4E5B9U;
  bits = (bits ^ (bits >> 27U)) * 0x94D049BB133111EBU;
  return bits ^ (bits >> 31U);
}

/// Elements [begin, end) of one parameter.
struct Piece {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

template <class T>
void fill(T* to, const Parameter& parameter, std::uint64_t key, Piece piece) {
  for (std::int64_t i = piece.begin; i < piece.end; ++i) {
    const double value =
        parameter.init == Init::kNormal
            ? parameter.init_std * philox_normal(key, 0, static_cast<std::uint64_t>(i))
            : (parameter.init == Init::kOne ? 1.0 : 0.0);
    to[i - piece.begin] = static_cast<T>(value);
  }
}

/// Makes the elements in pieces, in parallel, and copies them to the device.
template <class T>
void write(const Tensor& weight, const Parameter& parameter, std::uint64_t key, Device& device,
           WorkerPool& pool) {
  std::vector<T> staged(static_cast<std::size_t>(std::min(kStaged, parameter.size())));
  for (std::int64_t begin = 0; begin < parameter.size(); begin += kStaged) {
    const std::int64_t count = std::min(kStaged, parameter.size() - begin);
    pool.for_each((count + kPiece - 1) / kPiece, [&](std::int64_t index, int) {
      const std::int64_t first = index * kPiece;
      fill(staged.data() + first, parameter, key,
           {.begin = begin + first, .end = begin + std::min(count, first + kPiece)});
    });
    device.copy_from_host(weight.as<T>() + begin, staged.data(),
                          count * static_cast<std::int64_t>(sizeof(T)));
  }
}

}  // namespace

void ParameterStore::initialize(std::uint64_t seed) {
  WorkerPool pool(WorkerPool::default_threads());
  for (const Parameter& parameter : layout_.parameters()) {
    const std::uint64_t key = mix(mix(seed) ^ hash_of(parameter.name));
    const Tensor master = view(master_view_, parameter.name);
    with_float(master_dtype(),
               [&]<class T>() { write<T>(master, parameter, key, *device_, pool); });
  }
  publish();
}

}  // namespace nsa
