#pragma once

// fmt::format, through spdlog, so that its bundled and the system's copy both serve.
// (g++ 12 has no <format>. Never included by .cu files: fmt 9 does not compile under nvcc.)

#include <spdlog/fmt/fmt.h>
