/* Prints the host time of jfa_plan_update, jfa_forward and jfa_backward on a GPU, without a language in between.
 *
 *     cc -O2 -Iinclude benchmarks/host_time.c -ldl -o host_time && ./host_time LIBJFA [BATCH]
 *
 * One broadcast query over BATCH sequences (1024) of 0 to 29 keys, one head, head_dim 64. Microseconds: medians of 41
 * loops of 200 calls, with an idle GPU ahead of each loop. They depend on the core that the process runs on.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "jfa/jfa.h"

#define LOOPS 41
#define CALLS 200

static void* library(const char* name) {
  void* handle = dlopen(name, RTLD_NOW);
  if (handle == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
  return handle;
}

static void* find(void* handle, const char* name) {
  void* address = dlsym(handle, name);
  if (address == NULL) {
    fprintf(stderr, "there is no %s\n", name);
    exit(1);
  }
  return address;
}

static void check(int status, const char* what) {
  if (status != 0) {
    fprintf(stderr, "%s: %d\n", what, status);
    exit(1);
  }
}

static double now_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1e6 + time.tv_nsec * 1e-3;
}

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: %s LIBJFA [BATCH]\n", argv[0]);
    return 2;
  }
  void *driver = library("libcuda.so.1"), *jfa = library(argv[1]);
#define DRIVER(name, ...) int (*name)(__VA_ARGS__) = (int (*)(__VA_ARGS__))(intptr_t)find(driver, #name)
  DRIVER(cuInit, unsigned);
  DRIVER(cuDevicePrimaryCtxRetain, void**, int);
  DRIVER(cuCtxSetCurrent, void*);
  DRIVER(cuCtxSynchronize, void);
  DRIVER(cuStreamCreate, void**, unsigned);
  DRIVER(cuMemAlloc_v2, uint64_t*, size_t);
  DRIVER(cuMemcpyHtoD_v2, uint64_t, const void*, size_t);
  DRIVER(cuMemsetD8_v2, uint64_t, unsigned char, size_t);
#define JFA(name) __typeof__(&name) call_##name = (__typeof__(&name))(intptr_t)find(jfa, #name)
  JFA(jfa_plan_create);
  JFA(jfa_plan_destroy);
  JFA(jfa_plan_update);
  JFA(jfa_plan_workspace_size);
  JFA(jfa_forward);
  JFA(jfa_backward);

  void *context, *stream;
  check(cuInit(0), "cuInit");
  check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  check(cuStreamCreate(&stream, 1), "cuStreamCreate");

  const int batch = argc > 2 ? atoi(argv[2]) : 1024;
  int32_t* offsets = calloc(batch + 1, sizeof(int32_t));
  for (int b = 0; b < batch; ++b) offsets[b + 1] = offsets[b] + b * 7 % 30;
  jfa_plan_desc desc = JFA_PLAN_DESC_INIT;
  desc.device_type = JFA_DEVICE_TYPE_CUDA, desc.dtype = JFA_DTYPE_BF16, desc.flags = JFA_BROADCAST_Q;
  desc.heads_q = desc.heads_kv = 1, desc.head_dim = 64;
  desc.max_batch = batch, desc.max_total_kv = offsets[batch], desc.max_seqlen_q = 1, desc.max_seqlen_kv = 29;
  jfa_plan* plan;
  check(call_jfa_plan_create(&desc, &plan), "jfa_plan_create");

  /* Q, K, V, O, dO, dQ, dK, dV, LSE, the offsets and the workspace, each in a part of its own. */
  size_t forward_bytes, backward_bytes;
  check(call_jfa_plan_workspace_size(plan, &forward_bytes, &backward_bytes), "jfa_plan_workspace_size");
  size_t part = 256 + (size_t)(batch + offsets[batch]) * 64 * 2, bytes = forward_bytes + backward_bytes;
  part = (part + 255) / 256 * 256;
  uint64_t memory;
  check(cuMemAlloc_v2(&memory, 10 * part + bytes + 256), "cuMemAlloc");
  check(cuMemsetD8_v2(memory, 0, 10 * part + bytes), "cuMemsetD8");
#define PART(i) ((void*)(uintptr_t)(memory + (i) * part))
  check(cuMemcpyHtoD_v2((uint64_t)(uintptr_t)PART(9), offsets, (batch + 1) * sizeof(int32_t)), "cuMemcpyHtoD");
  jfa_batch sequences = JFA_BATCH_INIT;
  sequences.batch = batch, sequences.total_kv = offsets[batch], sequences.kv_offsets = PART(9);
  jfa_forward_args forward = JFA_FORWARD_ARGS_INIT;
  forward.q.data = PART(0), forward.k.data = PART(1), forward.v.data = PART(2), forward.o.data = PART(3);
  forward.lse = PART(8), forward.workspace = PART(10), forward.workspace_size = forward_bytes;
  jfa_backward_args backward = JFA_BACKWARD_ARGS_INIT;
  backward.q.data = PART(0), backward.k.data = PART(1), backward.v.data = PART(2), backward.o.data = PART(3);
  backward.grad_o.data = PART(4), backward.grad_q.data = PART(5), backward.grad_k.data = PART(6);
  backward.grad_v.data = PART(7), backward.lse = PART(8), backward.workspace = PART(10);
  backward.workspace_size = backward_bytes;

  const char* names[] = {"jfa_plan_update", "jfa_forward", "jfa_backward"};
  for (int which = 0; which < 3; ++which) {
    double times[LOOPS];
    for (int loop = 0; loop < LOOPS; ++loop) {
      check(cuCtxSynchronize(), "cuCtxSynchronize");
      const double begin = now_us();
      for (int i = 0; i < CALLS; ++i) {
        check(which == 0   ? call_jfa_plan_update(plan, &sequences, stream)
              : which == 1 ? call_jfa_forward(plan, &forward, stream)
                           : call_jfa_backward(plan, &backward, stream),
              names[which]);
      }
      times[loop] = (now_us() - begin) / CALLS;
    }
    qsort(times, LOOPS, sizeof(double), compare);
    printf("%s: %.2f us a call, %.2f to %.2f\n", names[which], times[LOOPS / 2], times[0], times[LOOPS - 1]);
  }
  check(cuCtxSynchronize(), "cuCtxSynchronize");
  call_jfa_plan_destroy(plan);
  free(offsets);
  return 0;
}
