// PLACEHOLDER to be replaced.
#include "ops/ops.h"
namespace nsa {
void CompressedSelectForward::check() const {}
void CompressedAttentionBackward::check() const {}
void SelectBlocks::check() const {}
void SelectedAttentionForward::check() const {}
void SelectedAttentionBackward::check() const {}
void WindowAttentionForward::check() const {}
void WindowAttentionBackward::check() const {}
void DenseAttentionForward::check() const {}
void DenseAttentionBackward::check() const {}
}
