#include <algorithm>

#include "kernels/common/check.h"
#include "kernels/common/documents.h"

namespace nsa::cuda {
namespace {

constexpr int kThreads = 256;

/// One thread: one row; a binary search in the first rows of the `count` documents. Documents
/// without rows own none.
__global__ void owner_kernel(std::int32_t* owner, const std::int32_t* begins, std::int32_t count,
                             std::int32_t rows) {
  const std::int32_t row = static_cast<std::int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (row >= rows) return;
  std::int32_t low = 0;       // begins[low] <= row
  std::int32_t high = count;  // begins[high] > row
  while (high - low > 1) {
    const std::int32_t middle = low + (high - low) / 2;
    if (begins[middle] <= row) {
      low = middle;
    } else {
      high = middle;
    }
  }
  owner[row] = low;
}

void launch_owner(std::int32_t* owner, const std::int32_t* begins, std::int32_t count,
                  std::int32_t rows, cudaStream_t stream) {
  if (rows == 0) return;
  owner_kernel<<<(rows + kThreads - 1) / kThreads, kThreads, 0, stream>>>(owner, begins, count,
                                                                          rows);
  check_launch("owner_kernel");
}

}  // namespace

std::int32_t* DocumentTable::resize(Column& column, std::int64_t count) {
  if (column.capacity < count || column.data == nullptr) {
    check(cudaStreamSynchronize(stream_));
    column.capacity = std::max<std::int64_t>(count + count / 2, 1024);
    column.memory = Buffer(*device_, column.capacity * 4);
    column.data = static_cast<std::int32_t*>(column.memory.data());
  }
  return column.data;
}

void DocumentTable::refresh_bounds(const Documents& documents) {
  if (std::equal(bounds_.begin(), bounds_.end(), documents.bounds.begin(),
                 documents.bounds.end())) {
    return;
  }
  bounds_.assign(documents.bounds.begin(), documents.bounds.end());
  rate_ = 0;
  const auto count = static_cast<std::int64_t>(bounds_.size());
  std::int32_t* bounds = resize(bounds_column_, count);
  staging_->upload(bounds, bounds_.data(), count * 4);
  launch_owner(resize(of_token_, documents.tokens()), bounds,
               static_cast<std::int32_t>(documents.count()),
               static_cast<std::int32_t>(documents.tokens()), stream_);
}

void DocumentTable::refresh_compression(const Documents& documents, const NsaGeometry& geometry) {
  if (rate_ == geometry.rate && block_ == geometry.compress_block()) return;
  rate_ = geometry.rate;
  block_ = geometry.compress_block();
  std::vector<std::int32_t> begins = {0};
  for (std::int64_t d = 0; d < documents.count(); ++d) {
    begins.push_back(begins.back() +
                     geometry.compressed_blocks(static_cast<std::int32_t>(documents.length(d))));
  }
  compressed_rows_ = begins.back();
  const auto count = static_cast<std::int64_t>(begins.size());
  std::int32_t* device_begins = resize(compressed_begin_, count);
  staging_->upload(device_begins, begins.data(), count * 4);
  launch_owner(resize(of_compressed_, compressed_rows_), device_begins,
               static_cast<std::int32_t>(documents.count()), compressed_rows_, stream_);
}

DocumentView DocumentTable::view(const Documents& documents) {
  refresh_bounds(documents);
  return {.bounds = bounds_column_.data,
          .of_token = of_token_.data,
          .compressed_begin = nullptr,
          .of_compressed = nullptr,
          .count = static_cast<std::int32_t>(documents.count()),
          .tokens = static_cast<std::int32_t>(documents.tokens()),
          .compressed_rows = 0};
}

DocumentView DocumentTable::view(const Documents& documents, const NsaGeometry& geometry) {
  DocumentView view = this->view(documents);
  refresh_compression(documents, geometry);
  view.compressed_begin = compressed_begin_.data;
  view.of_compressed = of_compressed_.data;
  view.compressed_rows = compressed_rows_;
  return view;
}

}  // namespace nsa::cuda
