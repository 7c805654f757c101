#pragma once

// The packed documents of a batch, as kernels ask for them: what stands where, by token.

#include <cstdint>
#include <vector>

#include <cuda_runtime_api.h>

#include "core/batch.h"
#include "core/buffer.h"
#include "core/device.h"
#include "kernels/common/staging.h"
#include "ops/nsa_geometry.h"

namespace nsa::cuda {

/// Plain pointers for kernels. Everything int32; global rows and tokens.
struct DocumentView {
  const std::int32_t* bounds;            ///< [count + 1]
  const std::int32_t* of_token;          ///< [tokens]: the document of a token
  const std::int32_t* compressed_begin;  ///< [count + 1]: first compressed row of a document; null
                                         ///< where no geometry was given
  const std::int32_t* of_compressed;     ///< [compressed rows]: the document of a compressed row
  std::int32_t count;
  std::int32_t tokens;
  std::int32_t compressed_rows;
};

/// Uploads the tables of a batch once, however many ops read them: they are made again only when
/// bounds or compression change.
class DocumentTable {
 public:
  DocumentTable(Device& device, Staging& staging, cudaStream_t stream)
      : device_(&device), staging_(&staging), stream_(stream) {}

  DocumentView view(const Documents& documents);
  DocumentView view(const Documents& documents, const NsaGeometry& geometry);

 private:
  void refresh_bounds(const Documents& documents);
  void refresh_compression(const Documents& documents, const NsaGeometry& geometry);

  struct Column {
    Buffer memory;
    std::int64_t capacity = 0;
    std::int32_t* data = nullptr;
  };
  std::int32_t* resize(Column& column, std::int64_t count);

  Device* device_;
  Staging* staging_;
  cudaStream_t stream_;
  std::vector<std::int32_t> bounds_;  ///< what is on the device
  std::int32_t rate_ = 0;             ///< 0: no compression tables
  std::int32_t block_ = 0;
  std::int32_t compressed_rows_ = 0;
  Column bounds_column_, of_token_, compressed_begin_, of_compressed_;
};

}  // namespace nsa::cuda
