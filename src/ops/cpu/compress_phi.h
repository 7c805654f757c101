#pragma once

// The compressor phi on a chunk of blocks, as its forward and its backward need it.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/batch.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/rope_table.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/vector_math.h"
#include "ops/nsa_compress.h"

namespace nsa::cpu {

/// Blocks of one document that one matrix product takes together. Chunks start anew at each
/// document and are of this size whatever stands around it, so that a packed document gets the
/// same bits as a lone one.
constexpr std::int64_t kChunkBlocks = 64;

struct BlockChunk {
  std::int64_t first_token = 0;  ///< of the first block, over all documents
  std::int64_t first_row = 0;    ///< compressed row of the first block, over all documents
  std::int64_t first_block = 0;  ///< within the document
  std::int64_t blocks = 0;
};

struct ChunkList {
  const BlockChunk* first = nullptr;
  std::int64_t count = 0;
};

/// The chunks of all documents, in order.
inline ChunkList list_chunks(const Documents& documents, const NsaGeometry& geometry,
                             Scratch::Frame& frame) {
  const auto blocks_of = [&](std::int64_t d) -> std::int64_t {
    return geometry.compressed_blocks(static_cast<std::int32_t>(documents.length(d)));
  };
  std::int64_t count = 0;
  for (std::int64_t d = 0; d < documents.count(); ++d) {
    count += (blocks_of(d) + kChunkBlocks - 1) / kChunkBlocks;
  }
  auto* chunks = frame.take<BlockChunk>(count);
  BlockChunk* next = chunks;
  std::int64_t row = 0;
  for (std::int64_t d = 0; d < documents.count(); ++d) {
    const std::int64_t blocks = blocks_of(d);
    for (std::int64_t begin = 0; begin < blocks; begin += kChunkBlocks) {
      *next++ = {.first_token = documents.begin(d) + begin * geometry.compress_stride(),
                 .first_row = row + begin,
                 .first_block = begin,
                 .blocks = std::min(kChunkBlocks, blocks - begin)};
    }
    row += blocks;
  }
  return {.first = chunks, .count = count};
}

/// Extents and parameters of phi, by pointer. `rows` below are (block, KV head) pairs of a chunk.
template <class T>
struct PhiView {
  Phi phi = Phi::kMean;
  std::int64_t heads = 0, dim = 0, block = 0, stride = 0;
  std::int64_t hidden = 0;  ///< 0 for mean
  std::int64_t bins = 0;    ///< of theta
  std::int64_t input = 0;   ///< channels of a row of z: dim, or block * dim for mlp_flat
  const T* theta = nullptr;
  const T* position = nullptr;
  const T* w1 = nullptr;
  const T* b1 = nullptr;
  const T* w2 = nullptr;
  const T* pool = nullptr;  ///< [heads, block] pooling weights; null for mlp_flat
};

template <class T, class Op>
PhiView<T> view_phi(const Op& op) {
  const auto data = [](const Tensor& tensor) {
    return tensor.defined() ? tensor.as<T>() : nullptr;
  };
  PhiView<T> view;
  view.phi = op.phi;
  view.heads = op.x.dim(1);
  view.dim = op.x.dim(2);
  view.block = op.geometry.compress_block();
  view.stride = op.geometry.compress_stride();
  view.hidden = op.weights.w1.defined() ? op.weights.w1.dim(0) : 0;
  view.bins = op.weights.theta.defined() ? op.weights.theta.dim(1) : 0;
  view.input = op.phi == Phi::kMlpFlat ? view.block * view.dim : view.dim;
  view.theta = data(op.weights.theta);
  view.position = data(op.weights.position);
  view.w1 = data(op.weights.w1);
  view.b1 = data(op.weights.b1);
  view.w2 = data(op.weights.w2);
  return view;
}

/// Share of bin m in token j of a block: block * |[j/block, (j+1)/block) n [m/bins, (m+1)/bins)|,
/// in whole numbers, so that the shares of a token sum to 1 at every block length.
inline double bin_share(std::int64_t j, std::int64_t m, std::int64_t block, std::int64_t bins) {
  const std::int64_t begin = std::max(j * bins, m * block);
  const std::int64_t end = std::min((j + 1) * bins, (m + 1) * block);
  return end > begin ? static_cast<double>(end - begin) / static_cast<double>(bins) : 0.0;
}

/// Into `weights` [heads, block]: softmax over the block of theta resampled to its length, or 1 /
/// block without theta. In double: the table is small and every output depends on it. Returns it as
/// T.
template <class T>
const T* pool_table(const PhiView<T>& view, double* weights, Scratch::Frame& frame) {
  for (std::int64_t h = 0; h < view.heads; ++h) {
    double* w = weights + h * view.block;
    for (std::int64_t j = 0; j < view.block; ++j) {
      w[j] = 0;
      for (std::int64_t m = 0; m < view.bins; ++m) {
        w[j] += static_cast<double>(view.theta[h * view.bins + m]) *
                bin_share(j, m, view.block, view.bins);
      }
    }
    const double most = *std::max_element(w, w + view.block);
    double sum = 0;
    for (std::int64_t j = 0; j < view.block; ++j) sum += w[j] = std::exp(w[j] - most);
    for (std::int64_t j = 0; j < view.block; ++j) w[j] /= sum;
  }
  T* table = frame.take<T>(view.heads * view.block);
  for (std::int64_t i = 0; i < view.heads * view.block; ++i) table[i] = static_cast<T>(weights[i]);
  return table;
}

/// The rotation of compressed rows at the positions of their blocks.
class BlockRotation {
 public:
  template <class Op>
  BlockRotation(const Op& op, Scratch::Frame& frame)
      : half_(op.rope.rotary_dim / 2),
        heads_(op.x.dim(1)),
        dim_(op.x.dim(2)),
        stride_(op.geometry.compress_stride()),
        offset_(compress_position_offset(op.position, op.geometry.compress_block())),
        frequency_(frame.take<double>(half_)) {
    rope_frequencies(op.rope, frequency_);
  }

  /// Turns the rows [blocks * heads, dim] of a chunk in place, or back where `inverse`.
  template <class T>
  void turn(const BlockChunk& chunk, bool inverse, T* row, Scratch& scratch) const {
    if (half_ == 0) return;
    Scratch::Frame frame(scratch);
    T* turn = frame.take<T>(2 * half_);
    for (std::int64_t i = 0; i < chunk.blocks; ++i) {
      const std::int64_t position = (chunk.first_block + i) * stride_ + offset_;
      rope_turn(frequency_, half_, static_cast<double>(position), turn);
      for (std::int64_t h = 0; h < heads_; ++h, row += dim_) {
        inverse ? unrotate_row(row, row, half_, turn) : rotate_row(row, row, half_, turn);
      }
    }
  }

 private:
  std::int64_t half_, heads_, dim_, stride_, offset_;
  double* frequency_;
};

/// z [rows, input]: the pooled blocks, or for mlp_flat their tokens side by side with the position
/// added. `x` points at the first token of the chunk.
template <class T>
void gather_blocks(const PhiView<T>& view, const T* x, std::int64_t blocks, T* z) {
  const std::int64_t width = view.heads * view.dim;
  for (std::int64_t i = 0; i < blocks; ++i) {
    for (std::int64_t h = 0; h < view.heads; ++h, z += view.input) {
      const T* token = x + i * view.stride * width + h * view.dim;
      if (view.phi == Phi::kMlpFlat) {
        for (std::int64_t j = 0; j < view.block; ++j, token += width) {
          for (std::int64_t c = 0; c < view.dim; ++c) {
            z[j * view.dim + c] = token[c] + view.position[j * view.dim + c];
          }
        }
      } else {
        std::fill_n(z, view.dim, T(0));
        for (std::int64_t j = 0; j < view.block; ++j, token += width) {
          add_scaled(z, view.pool[h * view.block + j], token, view.dim);
        }
      }
    }
  }
}

/// alpha [rows, hidden] = z W1^T + b1.
template <class T>
void first_layer(const PhiView<T>& view, const T* z, std::int64_t rows, T* alpha) {
  for (std::int64_t r = 0; r < rows; ++r)
    std::copy_n(view.b1, view.hidden, alpha + r * view.hidden);
  gemm(Gemm<T>{.transpose_b = true,
               .m = rows,
               .n = view.hidden,
               .k = view.input,
               .a = z,
               .lda = view.input,
               .b = view.w1,
               .ldb = view.input,
               .beta = 1,
               .c = alpha,
               .ldc = view.hidden});
}

}  // namespace nsa::cpu
