#include "kernels/cuda_device.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <nvtx3/nvToolsExt.h>
#include <string>

#include "core/error.h"
#include "kernels/common/check.h"
#include "kernels/stopwatch.h"

namespace nsa::cuda {
namespace {

/// The oldest chip whose instructions the kernels use.
constexpr int kLeastMajor = 8;

/// Bytes that are copied through pinned memory at a time.
constexpr std::int64_t kPiece = std::int64_t{16} << 20;

/// How many GPUs there are; throws where the answer is none, with what to do.
int count_devices() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorInsufficientDriver) {
    int driver = 0;
    int runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    const auto version = [](int number) {
      return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
    };
    fail_config("run.device asks for cuda, but " +
                (driver == 0 ? std::string("no NVIDIA driver is loaded")
                             : "the NVIDIA driver knows CUDA up to " + version(driver) +
                                   " and this program needs " + version(runtime)) +
                "; install a newer driver, or use device: cpu");
  }
  if (status != cudaSuccess || count == 0) {
    fail_config(std::string("run.device asks for cuda, but there is no usable NVIDIA GPU") +
                (status == cudaSuccess || status == cudaErrorNoDevice
                     ? std::string()
                     : std::string(" (") + cudaGetErrorString(status) + ")") +
                "; use device: cpu, or look at nvidia-smi and CUDA_VISIBLE_DEVICES");
  }
  return count;
}

/// Host memory for one GPU. Copies are the GPU's, in the order of its stream.
class PinnedMemory final : public Device {
 public:
  explicit PinnedMemory(CudaDevice& gpu) : gpu_(&gpu) {}
  std::string name() const override { return "pinned host memory"; }
  void copy_from_host(void* to, const void* host, std::int64_t bytes) override {
    gpu_->copy_from_host(to, host, bytes);
  }
  void copy_to_host(void* host, const void* from, std::int64_t bytes) override {
    gpu_->copy_to_host(host, from, bytes);
  }
  void copy(void* to, const void* from, std::int64_t bytes) override {
    gpu_->copy(to, from, bytes);
  }
  void fill_zero(void* data, std::int64_t bytes) override {
    gpu_->synchronize();
    std::memset(data, 0, static_cast<std::size_t>(bytes));
  }
  void synchronize() override { gpu_->synchronize(); }

 protected:
  void* do_allocate(std::int64_t bytes) override {
    void* data = nullptr;
    const cudaError_t status =
        cudaHostAlloc(&data, static_cast<std::size_t>(bytes), cudaHostAllocDefault);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // the error is told here, once
      fail_runtime("out of host memory: " + std::to_string(bytes >> 20) +
                   " MiB could not be pinned beside the " +
                   std::to_string(allocated_bytes() >> 20) +
                   " MiB that are; set memory.offload: none, or raise the limit of locked memory "
                   "(ulimit -l)");
    }
    check(status);
    return data;
  }
  void do_release(void* data) noexcept override { cudaFreeHost(data); }

 private:
  CudaDevice* gpu_;
};

}  // namespace

Device& CudaDevice::host_memory() {
  if (!host_memory_) host_memory_ = std::make_unique<PinnedMemory>(*this);
  return *host_memory_;
}

CudaDevice::CudaDevice(int index) : index_(index) {
  const int count = count_devices();
  if (index >= count) {
    fail_config("run.device is cuda:" + std::to_string(index) + ", but this machine shows " +
                std::to_string(count) + " GPU" + (count == 1 ? "" : "s") +
                "; the last one is cuda:" + std::to_string(count - 1));
  }
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index));
  name_ = properties.name;
  if (properties.major < kLeastMajor) {
    fail_config("GPU " + std::to_string(index) + " (" + name_ + ") has compute capability " +
                std::to_string(properties.major) + "." + std::to_string(properties.minor) +
                "; at least 8.0 is needed (A100, RTX 30 or newer)");
  }
  check(cudaSetDevice(index));
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  staging_ = std::make_unique<Staging>(stream_);
}

CudaDevice::~CudaDevice() {
  staging_.reset();
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

void CudaDevice::copy_from_host(void* to, const void* host, std::int64_t bytes) {
  for (std::int64_t done = 0; done < bytes; done += kPiece) {
    staging_->upload(static_cast<char*>(to) + done, static_cast<const char*>(host) + done,
                     std::min(kPiece, bytes - done));
  }
}

void CudaDevice::copy_to_host(void* host, const void* from, std::int64_t bytes) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(host, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, stream_));
  check(cudaStreamSynchronize(stream_));
}

void CudaDevice::copy(void* to, const void* from, std::int64_t bytes) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, stream_));
}

void CudaDevice::fill_zero(void* data, std::int64_t bytes) {
  if (bytes == 0) return;
  check(cudaMemsetAsync(data, 0, static_cast<std::size_t>(bytes), stream_));
}

void CudaDevice::synchronize() {
  check(cudaStreamSynchronize(stream_));
}

void CudaDevice::begin_range(const char* name) {
  nvtxRangePushA(name);
}

void CudaDevice::end_range() noexcept {
  nvtxRangePop();
}

std::unique_ptr<Stopwatch> CudaDevice::make_stopwatch() {
  return std::make_unique<EventStopwatch>(stream_);
}

std::optional<DeviceHealth> CudaDevice::health() {
  if (!nvml_) {
    std::array<char, 32> bus{};
    check(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), index_));
    nvml_ = std::make_unique<Nvml>(bus.data());
  }
  return nvml_->health();
}

std::optional<DeviceMemory> CudaDevice::memory() {
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total));
  peak_used_ = std::max(peak_used_, static_cast<std::int64_t>(total - free));
  return DeviceMemory{.total = static_cast<std::int64_t>(total),
                      .free = static_cast<std::int64_t>(free),
                      .peak_used = peak_used_};
}

void* CudaDevice::do_allocate(std::int64_t bytes) {
  void* data = nullptr;
  check(cudaSetDevice(index_));
  const cudaError_t status = cudaMalloc(&data, static_cast<std::size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // the error is told here, once
    std::size_t free = 0;
    std::size_t total = 0;
    cudaMemGetInfo(&free, &total);
    fail_runtime("out of memory on GPU " + std::to_string(index_) + ": " +
                 std::to_string(bytes >> 20) + " MiB more are needed beside the " +
                 std::to_string(allocated_bytes() >> 20) + " MiB in use, and " +
                 std::to_string(free >> 20) + " of " + std::to_string(total >> 20) +
                 " MiB are free; " + memory_advice());
  }
  check(status);
  memory();  // what is freed again counts too
  return data;
}

void CudaDevice::do_release(void* data) noexcept {
  cudaFree(data);
}

}  // namespace nsa::cuda
