#pragma once

// The memory of one GPU and the stream that all its work is queued on.

#include <memory>
#include <string>

#include <cuda_runtime_api.h>

#include "core/device.h"
#include "kernels/common/staging.h"
#include "kernels/nvml.h"

namespace nsa::cuda {

/// One GPU. Copies from and to the host and all ops are queued on one stream, in order.
class CudaDevice final : public Device {
 public:
  /// Throws Error (exit code 2) where GPU `index` is not there or cannot be used.
  explicit CudaDevice(int index);
  ~CudaDevice() override;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  cudaStream_t stream() const { return stream_; }
  Staging& staging() { return *staging_; }

  std::string name() const override { return name_; }
  /// Queued: the host memory is the caller's again at once.
  void copy_from_host(void* to, const void* host, std::int64_t bytes) override;
  void copy_to_host(void* host, const void* from, std::int64_t bytes) override;
  void copy(void* to, const void* from, std::int64_t bytes) override;
  void fill_zero(void* data, std::int64_t bytes) override;
  void synchronize() override;
  /// Pinned, so that kernels reach it over the bus.
  Device& host_memory() override;

  /// NVTX ranges of the calling thread.
  void begin_range(const char* name) override;
  void end_range() noexcept override;
  /// Of the stream's events.
  std::unique_ptr<Stopwatch> make_stopwatch() override;
  /// What NVML tells; none where its library is missing.
  std::optional<DeviceHealth> health() override;
  std::optional<DeviceMemory> memory() override;

 protected:
  void* do_allocate(std::int64_t bytes) override;
  void do_release(void* data) noexcept override;

 private:
  int index_;
  std::int64_t peak_used_ = 0;  ///< of the whole GPU, in bytes
  std::string name_;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<Device> host_memory_;  ///< made when it is first asked for
  std::unique_ptr<Nvml> nvml_;           ///< opened when health() is first asked
};

}  // namespace nsa::cuda
