#pragma once

// What every sublayer is handed beside its own tensors.

#include "core/batch.h"
#include "ops/nsa_geometry.h"
#include "ops/ops.h"

namespace nsa {

struct Step {
  Ops& ops;
  Documents documents;
  NsaGeometry geometry;
  bool reuse_blocks = false;  ///< the selected blocks are an input: nothing is selected
};

}  // namespace nsa
