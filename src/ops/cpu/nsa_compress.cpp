// Compression of keys and values, forward.

#include "ops/cpu/compress_phi.h"
#include "ops/cpu/cpu_ops.h"

namespace nsa::cpu {
namespace {

/// out [rows, dim] = phi of a chunk of blocks, before any rotation.
template <class T>
void evaluate_phi(const PhiView<T>& view, const T* x, std::int64_t blocks, T* out,
                  Scratch& scratch) {
  if (view.hidden == 0) {
    gather_blocks(view, x, blocks, out);
    return;
  }
  const std::int64_t rows = blocks * view.heads;
  Scratch::Frame frame(scratch);
  T* z = frame.take<T>(rows * view.input);
  T* hidden = frame.take<T>(rows * view.hidden);
  gather_blocks(view, x, blocks, z);
  first_layer(view, z, rows, hidden);
  for (std::int64_t i = 0; i < rows * view.hidden; ++i) hidden[i] *= sigmoid(hidden[i]);
  const bool residual = view.phi == Phi::kPoolMlp;
  if (residual) std::copy_n(z, rows * view.dim, out);
  gemm(Gemm<T>{.transpose_b = true,
               .m = rows,
               .n = view.dim,
               .k = view.hidden,
               .a = hidden,
               .lda = view.hidden,
               .b = view.w2,
               .ldb = view.hidden,
               .beta = residual ? T(1) : T(0),
               .c = out,
               .ldc = view.dim});
}

template <class T>
void compress(const CompressForward& op, WorkerPool& pool, std::deque<Scratch>& scratch) {
  Scratch::Frame frame(scratch.front());
  PhiView<T> view = view_phi<T>(op);
  if (!op.bypass && op.phi != Phi::kMlpFlat) {
    view.pool = pool_table(view, frame.take<double>(view.heads * view.block), frame);
  }
  const BlockRotation rotation(op, frame);
  const ChunkList chunks = list_chunks(op.documents, op.geometry, frame);
  const std::int64_t width = view.heads * view.dim;
  pool.for_each(chunks.count, [&](std::int64_t index, int worker) {
    const BlockChunk& chunk = chunks.first[index];
    Scratch& own = scratch[static_cast<std::size_t>(worker)];
    const T* x = op.x.as<T>() + chunk.first_token * width;
    T* out = op.out.as<T>() + chunk.first_row * width;
    if (op.bypass) {
      std::copy_n(x, chunk.blocks * width, out);
    } else {
      evaluate_phi(view, x, chunk.blocks, out, own);
    }
    rotation.turn(chunk, false, out, own);
  });
}

}  // namespace

void CpuOps::apply(const CompressForward& op) {
  with_float(op.x.dtype(), [&]<class T>() { compress<T>(op, pool_, scratch_); });
}

}  // namespace nsa::cpu
