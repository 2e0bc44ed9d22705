#include "device_memory.hpp"

#include <dlfcn.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

namespace {

constexpr std::size_t alignment = 256;

class HostMemory final : public DeviceMemory {
 public:
  void* allocate(std::size_t bytes) override {
    void* data = std::aligned_alloc(alignment, (bytes / alignment + 1) * alignment);
    if (data == nullptr) {
      throw std::bad_alloc();
    }
    std::memset(data, 0xff, bytes);
    return data;
  }
  void release(void* data) override { std::free(data); }
  void upload(void* device, const void* host, std::size_t bytes) override { std::memcpy(device, host, bytes); }
  void download(void* host, const void* device, std::size_t bytes) override { std::memcpy(host, device, bytes); }
  double time(const std::function<void()>& enqueue) override {
    const auto start = std::chrono::steady_clock::now();
    enqueue();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }
};

// The part of the CUDA driver API that the demo uses. Names with _v2 are what cuda.h maps the plain ones to.
using CUresult = int;
using CUdevice = int;
using CUdeviceptr = std::uint64_t;
using Handle = void*;

struct Driver {
  CUresult (*init)(unsigned);
  CUresult (*error_name)(CUresult, const char**);
  CUresult (*device_get)(CUdevice*, int);
  CUresult (*primary_retain)(Handle*, CUdevice);
  CUresult (*primary_release)(CUdevice);
  CUresult (*set_current)(Handle);
  CUresult (*mem_alloc)(CUdeviceptr*, std::size_t);
  CUresult (*mem_free)(CUdeviceptr);
  CUresult (*mem_set)(CUdeviceptr, unsigned char, std::size_t);
  CUresult (*copy_to_device)(CUdeviceptr, const void*, std::size_t);
  CUresult (*copy_to_host)(void*, CUdeviceptr, std::size_t);
  CUresult (*synchronize)();
  CUresult (*event_create)(Handle*, unsigned);
  CUresult (*event_destroy)(Handle);
  CUresult (*event_record)(Handle, Handle stream);
  CUresult (*event_synchronize)(Handle);
  CUresult (*event_elapsed)(float*, Handle, Handle);

  void check(CUresult result, const char* call) const {
    if (result != 0) {
      const char* name = nullptr;
      error_name(result, &name);
      throw std::runtime_error(std::string(call) + ": " + (name != nullptr ? name : std::to_string(result)));
    }
  }
};

template <typename Function>
void load(void* library, const char* symbol, Function& function) {
  void* address = dlsym(library, symbol);
  if (address == nullptr) {
    throw std::runtime_error(std::string("libcuda.so.1 lacks ") + symbol);
  }
  function = reinterpret_cast<Function>(address);
}

// The library stays loaded until the program ends: unloading a driver is never safe.
Driver load_driver() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    throw std::runtime_error(dlerror());
  }
  Driver driver{};
  load(library, "cuInit", driver.init);
  load(library, "cuGetErrorName", driver.error_name);
  load(library, "cuDeviceGet", driver.device_get);
  load(library, "cuDevicePrimaryCtxRetain", driver.primary_retain);
  load(library, "cuDevicePrimaryCtxRelease_v2", driver.primary_release);
  load(library, "cuCtxSetCurrent", driver.set_current);
  load(library, "cuMemAlloc_v2", driver.mem_alloc);
  load(library, "cuMemFree_v2", driver.mem_free);
  load(library, "cuMemsetD8_v2", driver.mem_set);
  load(library, "cuMemcpyHtoD_v2", driver.copy_to_device);
  load(library, "cuMemcpyDtoH_v2", driver.copy_to_host);
  load(library, "cuCtxSynchronize", driver.synchronize);
  load(library, "cuEventCreate", driver.event_create);
  load(library, "cuEventDestroy_v2", driver.event_destroy);
  load(library, "cuEventRecord", driver.event_record);
  load(library, "cuEventSynchronize", driver.event_synchronize);
  load(library, "cuEventElapsedTime", driver.event_elapsed);
  return driver;
}

class CudaMemory final : public DeviceMemory {
 public:
  explicit CudaMemory(int ordinal) : driver_(load_driver()) {
    driver_.check(driver_.init(0), "cuInit");
    driver_.check(driver_.device_get(&device_, ordinal), "cuDeviceGet");
    Handle context = nullptr;
    driver_.check(driver_.primary_retain(&context, device_), "cuDevicePrimaryCtxRetain");
    try {
      driver_.check(driver_.set_current(context), "cuCtxSetCurrent");
      driver_.check(driver_.event_create(&start_, 0), "cuEventCreate");
      driver_.check(driver_.event_create(&end_, 0), "cuEventCreate");
    } catch (...) {
      close();
      throw;
    }
  }
  ~CudaMemory() override { close(); }

  void* allocate(std::size_t bytes) override {
    CUdeviceptr data = 0;
    driver_.check(driver_.mem_alloc(&data, bytes > 0 ? bytes : 1), "cuMemAlloc");
    driver_.check(driver_.mem_set(data, 0xff, bytes > 0 ? bytes : 1), "cuMemsetD8");
    return reinterpret_cast<void*>(data);
  }
  void release(void* data) override { driver_.mem_free(reinterpret_cast<CUdeviceptr>(data)); }
  void upload(void* device, const void* host, std::size_t bytes) override {
    driver_.check(driver_.copy_to_device(reinterpret_cast<CUdeviceptr>(device), host, bytes), "cuMemcpyHtoD");
    // A copy from pageable memory may return before its last part has arrived.
    driver_.check(driver_.synchronize(), "cuCtxSynchronize");
  }
  void download(void* host, const void* device, std::size_t bytes) override {
    driver_.check(driver_.synchronize(), "cuCtxSynchronize");
    driver_.check(driver_.copy_to_host(host, reinterpret_cast<CUdeviceptr>(device), bytes), "cuMemcpyDtoH");
  }
  double time(const std::function<void()>& enqueue) override {
    driver_.check(driver_.event_record(start_, nullptr), "cuEventRecord");
    enqueue();
    driver_.check(driver_.event_record(end_, nullptr), "cuEventRecord");
    driver_.check(driver_.event_synchronize(end_), "cuEventSynchronize");
    float milliseconds = 0.0f;
    driver_.check(driver_.event_elapsed(&milliseconds, start_, end_), "cuEventElapsedTime");
    return milliseconds;
  }

 private:
  void close() {
    for (Handle event : {start_, end_}) {
      if (event != nullptr) {
        driver_.event_destroy(event);
      }
    }
    driver_.primary_release(device_);
  }

  Driver driver_;
  CUdevice device_ = 0;
  Handle start_ = nullptr;
  Handle end_ = nullptr;
};

}  // namespace

std::unique_ptr<DeviceMemory> open_host_memory() { return std::make_unique<HostMemory>(); }

std::unique_ptr<DeviceMemory> open_cuda_memory(int ordinal) { return std::make_unique<CudaMemory>(ordinal); }
