#include "cuda.hpp"

#include <dlfcn.h>

#include <stdexcept>

// Declared in PyTorch's headers for builds with CUDA only. Weak: a PyTorch without CUDA has no such function. The
// stream id of torch::stable::accelerator is no substitute, for it is no cudaStream_t.
extern "C" __attribute__((weak)) std::int32_t aoti_torch_get_current_cuda_stream(std::int32_t device_index,
                                                                                 void** ret_stream);

namespace jfa_torch {
namespace {

// cuStreamGetCaptureInfo, versions 1 and 2: the first has only the first three parameters, which does not matter to the
// calling convention. 0 is success, and status 1 an active capture.
using CaptureInfo = int (*)(jfa_stream stream, int* status, std::uint64_t* id, void* graph, void* nodes, void* count);

CaptureInfo find_capture_info() {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) {
    return nullptr;
  }
  void* function = dlsym(driver, "cuStreamGetCaptureInfo_v2");
  if (function == nullptr) {
    function = dlsym(driver, "cuStreamGetCaptureInfo");
  }
  return reinterpret_cast<CaptureInfo>(function);
}

}  // namespace

jfa_stream current_stream(std::int32_t device) {
  void* stream = nullptr;
  if (aoti_torch_get_current_cuda_stream == nullptr || aoti_torch_get_current_cuda_stream(device, &stream) != 0) {
    throw std::runtime_error("jfa: PyTorch cannot name its current CUDA stream");
  }
  return static_cast<jfa_stream>(stream);
}

std::uint64_t capture_id(jfa_stream stream) {
  static const CaptureInfo info = find_capture_info();
  int status = 0;
  std::uint64_t id = 0;
  // The legacy stream fails while another one captures: then it does not capture itself.
  if (info == nullptr || info(stream, &status, &id, nullptr, nullptr, nullptr) != 0 || status != 1) {
    return 0;
  }
  return id;
}

}  // namespace jfa_torch
