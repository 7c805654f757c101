#include "kernels/nvml.h"

#include <array>
#include <dlfcn.h>
#include <utility>

namespace nsa::cuda {
namespace {

// The part of NVML's interface that is used here, as its documentation gives it: every function
// returns 0 when it succeeds, and takes a GPU as an opaque pointer.
constexpr int kSuccess = 0;
constexpr int kGpuSensor = 0;            // NVML_TEMPERATURE_GPU
constexpr int kMultiprocessorClock = 1;  // NVML_CLOCK_SM

/// nvmlUtilization_t: per cent.
struct Utilisation {
  unsigned gpu = 0;
  unsigned memory = 0;
};

}  // namespace

std::vector<std::string> throttle_reasons(unsigned long long mask) {
  // nvmlClocksThrottleReason*: bit 0 is an idle GPU.
  static constexpr std::array<std::pair<unsigned long long, const char*>, 8> kReasons = {{
      {0x002, "application_clocks"},
      {0x004, "power_cap"},
      {0x008, "hardware_slowdown"},
      {0x010, "sync_boost"},
      {0x020, "thermal"},
      {0x040, "hardware_thermal"},
      {0x080, "power_brake"},
      {0x100, "display_clocks"},
  }};
  std::vector<std::string> found;
  for (const auto& [bit, name] : kReasons) {
    if ((mask & bit) != 0) found.emplace_back(name);
  }
  return found;
}

template <class Function>
Function* Nvml::find(const char* name) const {
  return library_ == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library_, name));
}

template <class... Arguments>
std::optional<double> Nvml::number(const char* name, Arguments... arguments) const {
  auto* read = find<int(void*, Arguments..., unsigned*)>(name);
  unsigned value = 0;
  if (read == nullptr || read(device_, arguments..., &value) != kSuccess) return std::nullopt;
  return static_cast<double>(value);
}

Nvml::Nvml(const std::string& pci_bus, const char* library)
    : library_(dlopen(library, RTLD_LAZY | RTLD_LOCAL)) {
  auto* start = find<int()>("nvmlInit_v2");
  auto* find_device = find<int(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
  if (start == nullptr || find_device == nullptr || start() != kSuccess) return;
  running_ = true;
  if (find_device(pci_bus.c_str(), &device_) != kSuccess) device_ = nullptr;
}

Nvml::~Nvml() {
  auto* stop = find<int()>("nvmlShutdown");
  if (running_ && stop != nullptr) stop();
  if (library_ != nullptr) dlclose(library_);
}

std::optional<double> Nvml::utilisation() const {
  auto* read = find<int(void*, Utilisation*)>("nvmlDeviceGetUtilizationRates");
  Utilisation rates;
  if (read == nullptr || read(device_, &rates) != kSuccess) return std::nullopt;
  return static_cast<double>(rates.gpu) / 100;
}

std::optional<DeviceHealth> Nvml::health() const {
  if (device_ == nullptr) return std::nullopt;
  const auto watts = [this](const char* name) {
    std::optional<double> milliwatts = number(name);
    if (milliwatts) *milliwatts /= 1000;
    return milliwatts;
  };
  unsigned long long reasons = 0;
  auto* read_reasons =
      find<int(void*, unsigned long long*)>("nvmlDeviceGetCurrentClocksThrottleReasons");
  if (read_reasons == nullptr || read_reasons(device_, &reasons) != kSuccess) reasons = 0;
  return DeviceHealth{.utilisation = utilisation(),
                      .power_w = watts("nvmlDeviceGetPowerUsage"),
                      .power_limit_w = watts("nvmlDeviceGetEnforcedPowerLimit"),
                      .temperature_c = number("nvmlDeviceGetTemperature", kGpuSensor),
                      .clock_mhz = number("nvmlDeviceGetClockInfo", kMultiprocessorClock),
                      .throttle = throttle_reasons(reasons)};
}

}  // namespace nsa::cuda
