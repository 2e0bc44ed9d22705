// Fences, named barriers, register reallocation, programmatic dependent launch.
#pragma once

#include <cstdint>

namespace jfa::ptx {

// Orders this thread's ordinary writes to shared memory before later reads by the async proxy (PTX ISA,
// "membar/fence").
__device__ __forceinline__ void fence_proxy_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// PTX ISA, "bar, barrier": named barriers 0 to 15.
__device__ __forceinline__ void bar_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

__device__ __forceinline__ void bar_arrive(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// PTX ISA, "setmaxnreg".
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// PTX ISA, "nanosleep": for the shortest time.
__device__ __forceinline__ void nanosleep() { asm volatile("nanosleep.u32 0;"); }

// PTX ISA, "griddepcontrol": waits for the results of the grid that this one was launched behind.
__device__ __forceinline__ void griddepcontrol_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// Lets the grid behind this one on the stream start as soon as there is room.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// PTX ISA, "ld.acquire" and "red.release": a counter in global memory that other CTAs advance.
__device__ __forceinline__ uint32_t load_acquire(const uint32_t* counter) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
  return value;
}

// PTX ISA, "atom": the value before.
__device__ __forceinline__ uint32_t fetch_add_acq_rel(uint32_t* counter, uint32_t count) {
  uint32_t value;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(value) : "l"(counter), "r"(count) : "memory");
  return value;
}

__device__ __forceinline__ void add_release(uint32_t* counter) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}

}  // namespace jfa::ptx
