#include "cuda.hpp"

#include <dlfcn.h>

#include <stdexcept>
#include <type_traits>

// Declared in PyTorch's headers for builds with CUDA only. Weak: a PyTorch without CUDA has no such function. The
// stream id of torch::stable::accelerator is no substitute, for it is no cudaStream_t.
extern "C" __attribute__((weak)) std::int32_t aoti_torch_get_current_cuda_stream(std::int32_t device_index,
                                                                                 void** ret_stream);

namespace jfa_torch {
namespace {

constexpr int kNoContext = 201;    // CUDA_ERROR_INVALID_CONTEXT
constexpr int kActiveCapture = 1;  // CU_STREAM_CAPTURE_STATUS_ACTIVE

/// Functions of the CUDA driver, all null if it is not loaded. They return 0 for success.
struct Driver {
  // Versions 1 and 2: the first has only the first three parameters, which does not matter to the calling convention.
  int (*capture_info)(jfa_stream stream, int* status, std::uint64_t* id, void* graph, void* nodes, void* count);
  int (*get_device)(int* device, int ordinal);
  int (*retain_primary)(void** context, int device);
  int (*release_primary)(int device);
  int (*push)(void* context);
  int (*pop)(void** context);

  Driver() {
    void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    const auto find = [library](auto& function, const char* name) {
      void* address = library == nullptr ? nullptr : dlsym(library, name);
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
    };
    find(capture_info, "cuStreamGetCaptureInfo_v2");
    if (capture_info == nullptr) {
      find(capture_info, "cuStreamGetCaptureInfo");
    }
    find(get_device, "cuDeviceGet");
    find(retain_primary, "cuDevicePrimaryCtxRetain");
    find(release_primary, "cuDevicePrimaryCtxRelease_v2");
    find(push, "cuCtxPushCurrent_v2");
    find(pop, "cuCtxPopCurrent_v2");
  }

  /// Calls `use` with PyTorch's context of a device current in this thread, and leaves the thread as it was.
  template <typename Use>
  void with_context(std::int32_t ordinal, Use use) const {
    int device = 0;
    void* context = nullptr;
    if (get_device(&device, ordinal) != 0 || retain_primary(&context, device) != 0) {
      return;
    }
    if (push(context) == 0) {
      use();
      pop(&context);
    }
    release_primary(device);
  }
};

}  // namespace

jfa_stream current_stream(std::int32_t device) {
  void* stream = nullptr;
  if (aoti_torch_get_current_cuda_stream == nullptr || aoti_torch_get_current_cuda_stream(device, &stream) != 0) {
    throw std::runtime_error("jfa: PyTorch cannot name its current CUDA stream");
  }
  return static_cast<jfa_stream>(stream);
}

std::uint64_t capture_id(std::int32_t device, jfa_stream stream) {
  static const Driver driver;
  if (driver.capture_info == nullptr) {
    return 0;
  }
  int result = 0, status = 0;
  std::uint64_t id = 0;
  const auto ask = [&] { result = driver.capture_info(stream, &status, &id, nullptr, nullptr, nullptr); };
  ask();
  if (result == kNoContext) {  // A thread of autograd has none until something in it calls the CUDA runtime.
    driver.with_context(device, ask);
  }
  // The legacy stream fails while another one captures: then it does not capture itself.
  return result == 0 && status == kActiveCapture ? id : 0;
}

}  // namespace jfa_torch
