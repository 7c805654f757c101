#pragma once

// What the driver's management library (NVML) tells about a GPU. It is opened at run time: a
// program that uses it starts on machines that have no driver.

#include <optional>
#include <string>
#include <vector>

#include "core/device.h"

namespace nsa::cuda {

/// One GPU as NVML sees it. Nothing of it throws: where the library, one of its functions or the
/// GPU is missing, there is nothing to tell.
class Nvml {
 public:
  /// `pci_bus`: as cudaDeviceGetPCIBusId writes it; CUDA's own index is not NVML's.
  explicit Nvml(const std::string& pci_bus, const char* library = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::optional<DeviceHealth> health() const;

 private:
  /// The function called `name`, which `Function` describes; null where the library has none.
  template <class Function>
  Function* find(const char* name) const;
  /// A number that NVML writes through its last argument; none where it cannot.
  template <class... Arguments>
  std::optional<double> number(const char* name, Arguments... arguments) const;
  std::optional<double> utilisation() const;

  void* library_ = nullptr;
  bool running_ = false;    ///< NVML counts its users: each start has its end
  void* device_ = nullptr;  ///< NVML's handle; null: nothing to tell
};

/// The reasons in NVML's bit mask, by name; an idle GPU lowers its clocks for no reason that
/// counts.
std::vector<std::string> throttle_reasons(unsigned long long mask);

}  // namespace nsa::cuda
