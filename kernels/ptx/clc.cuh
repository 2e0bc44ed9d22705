// Cluster launch control (PTX ISA, "clusterlaunchcontrol"): a running cluster takes over one that has not started.
#pragma once

#include <cstdint>

namespace jfa::ptx {

constexpr uint32_t kClcResponseBytes = 16;
constexpr uint32_t kClcNone = ~0u;

// "try_cancel", by one thread: the response, 16 bytes aligned to them, and these bytes for `barrier`. Not again after
// one that failed. Multicast: to every CTA of the cluster.
template <bool kMulticast>
__device__ __forceinline__ void clc_try_cancel(uint32_t response, uint32_t barrier) {
  if constexpr (kMulticast) {
    asm volatile(
        "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128 "
        "[%0], [%1];" ::"r"(response),
        "r"(barrier)
        : "memory");
  } else {
    asm volatile(
        "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], [%1];" ::"r"(
            response),
        "r"(barrier)
        : "memory");
  }
}

// "query_cancel": the x index of the first CTA of the cluster that was taken over, kClcNone if none was.
__device__ __forceinline__ uint32_t clc_query(uint32_t response) {
  uint32_t first;
  asm volatile(
      "{\n"
      ".reg .b128 response;\n"
      ".reg .pred taken;\n"
      "ld.shared.b128 response, [%1];\n"
      "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 taken, response;\n"
      "mov.b32 %0, -1;\n"
      "@taken clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %0, response;\n"
      "}"
      : "=r"(first)
      : "r"(response)
      : "memory");
  return first;
}

}  // namespace jfa::ptx
