// Memory and time of the device that a plan runs on: host memory, or CUDA's through the driver alone.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  // Memory aligned to 256 bytes, filled with NaN, so that an element that is never written shows.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* data) = 0;
  virtual void upload(void* device, const void* host, std::size_t bytes) = 0;
  // Waits for the work on the default stream first.
  virtual void download(void* host, const void* device, std::size_t bytes) = 0;
  // Milliseconds that the device takes for the work that `enqueue` puts on the default stream.
  virtual double time(const std::function<void()>& enqueue) = 0;
};

std::unique_ptr<DeviceMemory> open_host_memory();

// The driver is loaded at run time, so that the program neither needs nor links CUDA. Throws std::runtime_error when
// there is no driver or no such device.
std::unique_ptr<DeviceMemory> open_cuda_memory(int ordinal);

// A piece of device memory; it must not outlive its device.
class Buffer {
 public:
  Buffer(DeviceMemory& device, std::size_t bytes) : device_(&device), data_(device.allocate(bytes)), bytes_(bytes) {}
  Buffer(DeviceMemory& device, const void* host, std::size_t bytes) : Buffer(device, bytes) {
    device.upload(data_, host, bytes);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { device_->release(data_); }

  void* data() const { return data_; }
  std::size_t size() const { return bytes_; }
  void download(void* host) const { device_->download(host, data_, bytes_); }

 private:
  DeviceMemory* device_;
  void* data_;
  std::size_t bytes_;
};
