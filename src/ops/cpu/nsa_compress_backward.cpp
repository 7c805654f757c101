// Compression of keys and values, backward: gradients of the blocks first, then of the tokens,
// each of which gathers from the few blocks that hold it.

#include "ops/cpu/compress_phi.h"
#include "ops/cpu/cpu_ops.h"

namespace nsa::cpu {
namespace {

/// Most partial sums of the parameter gradients: bounds their memory, and with the chunks fixes
/// the order of the sums whatever the number of threads.
constexpr std::int64_t kMostPartials = 32;
/// Tokens per index of the gathering loop.
constexpr std::int64_t kChunkTokens = 64;
/// Elements per index of the loop that adds the partial sums.
constexpr std::int64_t kChunkElements = 4096;

/// One partial sum of the gradients of phi's parameters; null where phi has no such parameter.
template <class T>
struct PhiSums {
  T* w1 = nullptr;
  T* b1 = nullptr;
  T* w2 = nullptr;
  T* position = nullptr;
  double* pool = nullptr;  ///< [heads, block], of the pooling weights

  static PhiSums take(const PhiView<T>& view, Scratch::Frame& frame) {
    PhiSums sums;
    if (view.hidden > 0) {
      sums.w1 = zeros<T>(view.hidden * view.input, frame);
      sums.b1 = zeros<T>(view.hidden, frame);
      sums.w2 = zeros<T>(view.dim * view.hidden, frame);
    }
    if (view.position != nullptr) sums.position = zeros<T>(view.block * view.dim, frame);
    if (view.theta != nullptr) sums.pool = zeros<double>(view.heads * view.block, frame);
    return sums;
  }

 private:
  template <class U>
  static U* zeros(std::int64_t count, Scratch::Frame& frame) {
    U* data = frame.take<U>(count);
    std::fill_n(data, count, U(0));
    return data;
  }
};

/// Where one index of the parallel loop adds its sums and takes its memory.
template <class T>
struct PhiWork {
  PhiSums<T> sums;
  Scratch* scratch = nullptr;
};

/// From dy (gradient of phi's output) to dz (of its input rows), through the two layers. For
/// pool_mlp dz holds dy on entry, which is the residual's share.
template <class T>
void differentiate_layers(const PhiView<T>& view, const T* z, const T* dy, std::int64_t rows, T* dz,
                          const PhiWork<T>& work) {
  const PhiSums<T>& sums = work.sums;
  Scratch::Frame frame(*work.scratch);
  const std::int64_t count = rows * view.hidden;
  T* alpha = frame.take<T>(count);
  T* u = frame.take<T>(count);
  T* dalpha = frame.take<T>(count);
  first_layer(view, z, rows, alpha);
  gemm(Gemm<T>{.m = rows,
               .n = view.hidden,
               .k = view.dim,
               .a = dy,
               .lda = view.dim,
               .b = view.w2,
               .ldb = view.hidden,
               .c = dalpha,
               .ldc = view.hidden});
  for (std::int64_t i = 0; i < count; ++i) {
    const T gate = sigmoid(alpha[i]);
    u[i] = alpha[i] * gate;
    dalpha[i] *= gate * (T(1) + alpha[i] * (T(1) - gate));
  }
  gemm(Gemm<T>{.transpose_a = true,
               .m = view.dim,
               .n = view.hidden,
               .k = rows,
               .a = dy,
               .lda = view.dim,
               .b = u,
               .ldb = view.hidden,
               .beta = 1,
               .c = sums.w2,
               .ldc = view.hidden});
  gemm(Gemm<T>{.transpose_a = true,
               .m = view.hidden,
               .n = view.input,
               .k = rows,
               .a = dalpha,
               .lda = view.hidden,
               .b = z,
               .ldb = view.input,
               .beta = 1,
               .c = sums.w1,
               .ldc = view.input});
  for (std::int64_t r = 0; r < rows; ++r) {
    add_scaled(sums.b1, T(1), dalpha + r * view.hidden, view.hidden);
  }
  gemm(Gemm<T>{.m = rows,
               .n = view.input,
               .k = view.hidden,
               .a = dalpha,
               .lda = view.hidden,
               .b = view.w1,
               .ldb = view.input,
               .beta = view.phi == Phi::kPoolMlp ? T(1) : T(0),
               .c = dz,
               .ldc = view.input});
}

/// pool[h, j] += sum over the blocks of <dz of the block, token j of the block>.
template <class T>
void sum_pool(const PhiView<T>& view, const T* x, const T* dz, std::int64_t blocks, double* pool) {
  const std::int64_t width = view.heads * view.dim;
  for (std::int64_t i = 0; i < blocks; ++i) {
    for (std::int64_t h = 0; h < view.heads; ++h, dz += view.dim) {
      const T* token = x + i * view.stride * width + h * view.dim;
      for (std::int64_t j = 0; j < view.block; ++j, token += width) {
        pool[h * view.block + j] += static_cast<double>(dot(dz, token, view.dim));
      }
    }
  }
}

/// dz [rows, input] of a chunk from dout [rows, dim], and the chunk's share of the sums.
template <class T>
void differentiate_phi(const PhiView<T>& view, const T* x, const T* dy, std::int64_t blocks, T* dz,
                       const PhiWork<T>& work) {
  const std::int64_t rows = blocks * view.heads;
  if (view.input == view.dim) std::copy_n(dy, rows * view.dim, dz);
  if (view.hidden == 0) return;
  const PhiSums<T>& sums = work.sums;
  Scratch::Frame frame(*work.scratch);
  T* z = frame.take<T>(rows * view.input);
  gather_blocks(view, x, blocks, z);
  differentiate_layers(view, z, dy, rows, dz, work);
  if (sums.pool != nullptr) sum_pool(view, x, dz, blocks, sums.pool);
  if (sums.position != nullptr) {
    for (std::int64_t r = 0; r < rows; ++r) {
      add_scaled(sums.position, T(1), dz + r * view.input, view.input);
    }
  }
}

/// dx of tokens [begin, end) of a document of `blocks` compressed blocks whose first row of dz is
/// `dz`; `dx` points at the document's first token.
template <class T>
void gather_tokens(const PhiView<T>& view, const T* dz, std::int64_t blocks, std::int64_t begin,
                   std::int64_t end, T* dx) {
  for (std::int64_t s = begin; s < end; ++s) {
    const std::int64_t first = s < view.block ? 0 : (s - view.block + view.stride) / view.stride;
    const std::int64_t last = std::min(blocks - 1, s / view.stride);
    for (std::int64_t h = 0; h < view.heads; ++h) {
      T* out = dx + (s * view.heads + h) * view.dim;
      std::fill_n(out, view.dim, T(0));
      for (std::int64_t i = first; i <= last; ++i) {
        const std::int64_t j = s - i * view.stride;
        const T* row = dz + (i * view.heads + h) * view.input;
        if (view.pool == nullptr) {
          add_scaled(out, T(1), row + j * view.dim, view.dim);
        } else {
          add_scaled(out, view.pool[h * view.block + j], row, view.dim);
        }
      }
    }
  }
}

/// All tokens of all documents.
template <class T>
void gather_documents(const CompressBackward& op, const PhiView<T>& view, const T* dz,
                      WorkerPool& pool) {
  std::int64_t row = 0;
  for (std::int64_t d = 0; d < op.documents.count(); ++d) {
    const std::int64_t tokens = op.documents.length(d);
    const std::int64_t blocks = op.geometry.compressed_blocks(static_cast<std::int32_t>(tokens));
    const T* document_dz = dz + row * view.heads * view.input;
    T* dx = op.dx.as<T>() + op.documents.begin(d) * view.heads * view.dim;
    pool.for_each((tokens + kChunkTokens - 1) / kChunkTokens, [&](std::int64_t chunk, int) {
      const std::int64_t begin = chunk * kChunkTokens;
      gather_tokens(view, document_dz, blocks, begin, std::min(tokens, begin + kChunkTokens), dx);
    });
    row += blocks;
  }
}

/// gradient[e] += the partial sums of element e, in order. `of` picks the array of one partial.
template <class T, class Of>
void add_partials(const Tensor& gradient, const PhiSums<T>* partials, std::int64_t count, Of&& of,
                  WorkerPool& pool) {
  if (!gradient.defined() || count == 0) return;
  T* total = gradient.as<T>();
  const std::int64_t size = gradient.size();
  pool.for_each((size + kChunkElements - 1) / kChunkElements, [&](std::int64_t chunk, int) {
    const std::int64_t begin = chunk * kChunkElements;
    const std::int64_t end = std::min(size, begin + kChunkElements);
    for (std::int64_t e = begin; e < end; ++e) {
      T sum = 0;
      for (std::int64_t g = 0; g < count; ++g) sum += of(partials[g])[e];
      total[e] += sum;
    }
  });
}

/// Through the softmax and the resampling: dtheta += dlogits A, dlogits_j = w_j (dw_j - <w, dw>).
template <class T>
void add_theta(const PhiView<T>& view, const double* weights, const PhiSums<T>* partials,
               std::int64_t count, T* dtheta) {
  const auto total = [&](std::int64_t at) {
    double sum = 0;
    for (std::int64_t g = 0; g < count; ++g) sum += partials[g].pool[at];
    return sum;
  };
  for (std::int64_t h = 0; h < view.heads; ++h) {
    double mean = 0;
    for (std::int64_t j = 0; j < view.block; ++j) {
      mean += weights[h * view.block + j] * total(h * view.block + j);
    }
    for (std::int64_t m = 0; m < view.bins; ++m) {
      double sum = 0;
      for (std::int64_t j = 0; j < view.block; ++j) {
        const double dlogit = weights[h * view.block + j] * (total(h * view.block + j) - mean);
        sum += dlogit * bin_share(j, m, view.block, view.bins);
      }
      dtheta[h * view.bins + m] += static_cast<T>(sum);
    }
  }
}

/// Rate 1, the identity: dx is dout turned back.
template <class T>
void pass_through(const CompressBackward& op, WorkerPool& pool, std::deque<Scratch>& scratch) {
  Scratch::Frame frame(scratch.front());
  const BlockRotation rotation(op, frame);
  const ChunkList chunks = list_chunks(op.documents, op.geometry, frame);
  const std::int64_t width = op.x.dim(1) * op.x.dim(2);
  pool.for_each(chunks.count, [&](std::int64_t index, int worker) {
    const BlockChunk& chunk = chunks.first[index];
    T* dx = op.dx.as<T>() + chunk.first_token * width;
    std::copy_n(op.dout.as<T>() + chunk.first_row * width, chunk.blocks * width, dx);
    rotation.turn(chunk, true, dx, scratch[static_cast<std::size_t>(worker)]);
  });
}

template <class T>
void differentiate(const CompressBackward& op, WorkerPool& pool, std::deque<Scratch>& scratch) {
  Scratch::Frame frame(scratch.front());
  PhiView<T> view = view_phi<T>(op);
  double* weights = frame.take<double>(view.heads * view.block);
  if (op.phi != Phi::kMlpFlat) view.pool = pool_table(view, weights, frame);
  const BlockRotation rotation(op, frame);
  const ChunkList chunks = list_chunks(op.documents, op.geometry, frame);
  const std::int64_t per_group = (chunks.count + kMostPartials - 1) / kMostPartials;
  const std::int64_t groups = per_group == 0 ? 0 : (chunks.count + per_group - 1) / per_group;
  auto* partials = frame.take<PhiSums<T>>(groups);
  for (std::int64_t g = 0; g < groups; ++g) partials[g] = PhiSums<T>::take(view, frame);
  const std::int64_t width = view.heads * view.dim;
  T* dz = frame.take<T>(op.dout.dim(0) * view.heads * view.input);

  pool.for_each(groups, [&](std::int64_t group, int worker) {
    Scratch& own = scratch[static_cast<std::size_t>(worker)];
    Scratch::Frame local(own);
    const PhiWork<T> work{.sums = partials[group], .scratch = &own};
    T* dy = local.take<T>(kChunkBlocks * width);
    const std::int64_t end = std::min(chunks.count, (group + 1) * per_group);
    for (std::int64_t c = group * per_group; c < end; ++c) {
      const BlockChunk& chunk = chunks.first[c];
      std::copy_n(op.dout.as<T>() + chunk.first_row * width, chunk.blocks * width, dy);
      rotation.turn(chunk, true, dy, own);
      differentiate_phi(view, op.x.as<T>() + chunk.first_token * width, dy, chunk.blocks,
                        dz + chunk.first_row * view.heads * view.input, work);
    }
  });
  gather_documents(op, view, dz, pool);

  const auto add = [&](const Tensor& gradient, T* PhiSums<T>::*field) {
    const auto of = [field](const PhiSums<T>& sums) { return sums.*field; };
    add_partials<T>(gradient, partials, groups, of, pool);
  };
  add(op.dweights.w1, &PhiSums<T>::w1);
  add(op.dweights.b1, &PhiSums<T>::b1);
  add(op.dweights.w2, &PhiSums<T>::w2);
  add(op.dweights.position, &PhiSums<T>::position);
  if (op.dweights.theta.defined()) {
    add_theta(view, weights, partials, groups, op.dweights.theta.as<T>());
  }
}

}  // namespace

void CpuOps::apply(const CompressBackward& op) {
  with_float(op.x.dtype(), [&]<class T>() {
    if (op.bypass) {
      pass_through<T>(op, pool_, scratch_);
    } else {
      differentiate<T>(op, pool_, scratch_);
    }
  });
}

}  // namespace nsa::cpu
