#pragma once

// What a run says about itself before its first step.

#include <cstdint>
#include <string>
#include <vector>

#include "train/workshop.h"

namespace nsa {

/// Version, device, model, data, schedule with its stages, memory and disk, a line each.
std::vector<std::string> start_report(const Workshop& shop);

/// The most bytes of the device's memory that were in use so far; of a GPU by all that is on it.
std::int64_t peak_memory(Device& device);
/// That beside what was planned.
std::string peak_memory_line(const Workshop& shop);

/// "1,234,567"
std::string grouped(std::int64_t count);
/// "12.3 MiB"
std::string size_text(std::int64_t bytes);

}  // namespace nsa
