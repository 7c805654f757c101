// PLACEHOLDER to be replaced.
#include "ops/ops.h"
namespace nsa {
void MatmulForward::check() const {}
void MatmulBackwardInput::check() const {}
void MatmulBackwardWeight::check() const {}
void ResidualNormForward::check() const {}
void ResidualNormBackward::check() const {}
void SplitRopeForward::check() const {}
void SplitRopeBackward::check() const {}
void SwiGluForward::check() const {}
void SwiGluBackward::check() const {}
void EmbeddingForward::check() const {}
void EmbeddingBackward::check() const {}
void LinearCrossEntropy::check() const {}
void SumSquares::check() const {}
void AdamW::check() const {}
}
