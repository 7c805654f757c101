#pragma once

#include <cstdint>

namespace nsa {

/// Which kernels a GPU runs. The CPU has one kind.
enum class KernelChoice : std::uint8_t {
  kAuto,    ///< what is fastest on this GPU at this shape
  kGeneral  ///< those that every GPU from sm_80 on runs
};

}  // namespace nsa
