#include "train/utilisation.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "train/flops.h"

namespace nsa {
namespace {

struct Peak {
  std::string_view part;  ///< of the device's name
  double tflops;          ///< bf16, fp32 sums, without sparsity
};

// The first that fits a name counts: longer names stand before their beginnings.
constexpr std::array kPeaks = {
    Peak{"H100 PCIe", 756}, Peak{"H100 NVL", 835},   Peak{"H100", 989.4},  Peak{"H200", 989.4},
    Peak{"H800", 989.4},    Peak{"B200", 2250},      Peak{"A100", 312},    Peak{"A800", 312},
    Peak{"A40", 149.7},     Peak{"A30", 165},        Peak{"A10", 125},     Peak{"L40S", 362},
    Peak{"L40", 181},       Peak{"RTX 4090", 165.2}, Peak{"RTX 3090", 71},
};
constexpr double kTera = 1e12;

}  // namespace

std::optional<double> peak_flops(const Config& config, const std::string& device, DType dtype) {
  if (config.log.peak_tflops) return *config.log.peak_tflops * kTera;
  if (dtype != DType::kBF16) return std::nullopt;
  const auto* const found = std::find_if(kPeaks.begin(), kPeaks.end(), [&device](const Peak& peak) {
    return device.find(peak.part) != std::string::npos;
  });
  if (found == kPeaks.end()) return std::nullopt;
  return found->tflops * kTera;
}

double training_flops(const Config& config, std::int64_t seq_len, const NsaGeometry& geometry) {
  return kTrainingPerForward * forward_flops(config, seq_len, geometry).total();
}

}  // namespace nsa
