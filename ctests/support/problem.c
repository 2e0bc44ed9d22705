#include "problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 64, TAIL = 3, ALIGNMENT = 256 };

void* problem_memory(size_t size) {
  void* data = aligned_alloc(ALIGNMENT, (size + ALIGNMENT) / ALIGNMENT * ALIGNMENT);
  if (data == NULL) {
    fprintf(stderr, "out of memory\n");
    abort();
  }
  return data;
}

int problem_is_unwritten(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits == PROBLEM_UNWRITTEN;
}

static int unwritten(const float* data, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (!problem_is_unwritten(data[i])) {
      return 0;
    }
  }
  return 1;
}

/* A buffer and its guard, all unwritten. */
static float* buffer(size_t count) {
  const uint32_t bits = PROBLEM_UNWRITTEN;
  float* data = problem_memory((count + GUARD) * sizeof(float));
  for (size_t i = 0; i < count + GUARD; i++) {
    memcpy(&data[i], &bits, sizeof(bits));
  }
  return data;
}

/* Fills `rows` rows of `width` elements from row `begin` on with values between -1 and 1. */
static void fill(float* data, int64_t begin, int64_t rows, size_t width, uint32_t* seed) {
  for (size_t i = (size_t)begin * width; i < (size_t)(begin + rows) * width; i++) {
    *seed = *seed * UINT32_C(1664525) + UINT32_C(1013904223);
    data[i] = (float)(*seed >> 8) / 8388608.0f - 1.0f;
  }
}

size_t problem_elements_q(const problem* p) { return (size_t)(p->rows_q * p->desc.heads_q * p->desc.head_dim); }
size_t problem_elements_kv(const problem* p) { return (size_t)(p->rows_kv * p->desc.heads_kv * p->desc.head_dim); }
size_t problem_elements_o(const problem* p) { return (size_t)(p->rows_o * p->desc.heads_q * p->desc.head_dim); }
size_t problem_elements_lse(const problem* p) { return (size_t)(p->rows_o * p->desc.heads_q); }

sequence problem_sequence(const problem* p, int64_t b) {
  const int32_t* q_offsets = p->batch.q_offsets;
  const int32_t* kv_offsets = p->batch.kv_offsets;
  const int32_t* kv_lengths = p->batch.kv_lengths;
  sequence s = {0, b * p->desc.max_seqlen_q, kv_offsets[b], p->desc.max_seqlen_q, kv_offsets[b + 1] - kv_offsets[b]};
  if (q_offsets != NULL) {
    s.begin_q = s.begin_o = q_offsets[b];
    s.len_q = q_offsets[b + 1] - q_offsets[b];
  }
  if (kv_lengths != NULL) {
    s.len_kv = kv_lengths[b];
  }
  return s;
}

static int64_t longest(const int32_t* offsets, int64_t batch) {
  int64_t length = 0;
  for (int64_t b = 0; b < batch; b++) {
    if (offsets[b + 1] - offsets[b] > length) {
      length = offsets[b + 1] - offsets[b];
    }
  }
  return length;
}

void problem_init(problem* p, int32_t heads_q, int32_t heads_kv, int32_t head_dim, int64_t batch, int64_t seqlen_q,
                  const int32_t* q_offsets, const int32_t* kv_offsets, const int32_t* kv_lengths) {
  const jfa_plan_desc desc = JFA_PLAN_DESC_INIT;
  const jfa_batch none = JFA_BATCH_INIT;
  p->desc = desc;
  p->batch = none;
  p->rows_q = q_offsets == NULL ? seqlen_q : q_offsets[batch] + TAIL;
  p->rows_o = q_offsets == NULL ? batch * seqlen_q : p->rows_q;
  p->rows_kv = kv_offsets[batch] + TAIL;

  p->desc.dtype = JFA_DTYPE_FP32;
  p->desc.heads_q = heads_q;
  p->desc.heads_kv = heads_kv;
  p->desc.head_dim = head_dim;
  p->desc.flags = q_offsets == NULL ? JFA_BROADCAST_Q : 0;
  p->desc.max_workers = 2;
  p->desc.max_batch = batch;
  p->desc.max_total_q = p->rows_q;
  p->desc.max_total_kv = p->rows_kv;
  p->desc.max_seqlen_q = q_offsets == NULL ? seqlen_q : longest(q_offsets, batch);
  p->desc.max_seqlen_kv = longest(kv_offsets, batch);
  p->batch.batch = batch;
  p->batch.q_offsets = q_offsets;
  p->batch.kv_offsets = kv_offsets;
  p->batch.kv_lengths = kv_lengths;

  p->q = buffer(problem_elements_q(p));
  p->k = buffer(problem_elements_kv(p));
  p->v = buffer(problem_elements_kv(p));
  p->grad_o = buffer(problem_elements_o(p));
  p->o = buffer(problem_elements_o(p));
  p->lse = buffer(problem_elements_lse(p));
  p->grad_q = buffer(problem_elements_q(p));
  p->grad_k = buffer(problem_elements_kv(p));
  p->grad_v = buffer(problem_elements_kv(p));

  uint32_t seed = 1;
  const size_t width_q = (size_t)(heads_q * head_dim);
  const size_t width_kv = (size_t)(heads_kv * head_dim);
  for (int64_t b = 0; b < batch; b++) {
    const sequence s = problem_sequence(p, b);
    fill(p->q, s.begin_q, s.len_q, width_q, &seed);
    fill(p->grad_o, s.begin_o, s.len_q, width_q, &seed);
    fill(p->k, s.begin_kv, s.len_kv, width_kv, &seed);
    fill(p->v, s.begin_kv, s.len_kv, width_kv, &seed);
  }
}

void problem_free(problem* p) {
  free(p->q);
  free(p->k);
  free(p->v);
  free(p->grad_o);
  free(p->o);
  free(p->lse);
  free(p->grad_q);
  free(p->grad_k);
  free(p->grad_v);
}

static jfa_const_tensor input(const float* data) {
  const jfa_const_tensor tensor = {data, 0, 0};
  return tensor;
}

static jfa_tensor output(float* data) {
  const jfa_tensor tensor = {data, 0, 0};
  return tensor;
}

jfa_forward_args problem_forward_args(const problem* p, void* workspace, size_t workspace_size) {
  jfa_forward_args args = JFA_FORWARD_ARGS_INIT;
  args.q = input(p->q);
  args.k = input(p->k);
  args.v = input(p->v);
  args.o = output(p->o);
  args.lse = p->lse;
  args.workspace = workspace;
  args.workspace_size = workspace_size;
  return args;
}

jfa_backward_args problem_backward_args(const problem* p, void* workspace, size_t workspace_size) {
  jfa_backward_args args = JFA_BACKWARD_ARGS_INIT;
  args.q = input(p->q);
  args.k = input(p->k);
  args.v = input(p->v);
  args.o = input(p->o);
  args.grad_o = input(p->grad_o);
  args.lse = p->lse;
  args.grad_q = output(p->grad_q);
  args.grad_k = output(p->grad_k);
  args.grad_v = output(p->grad_v);
  args.workspace = workspace;
  args.workspace_size = workspace_size;
  return args;
}

int problem_outputs_untouched(const problem* p) {
  return unwritten(p->o, problem_elements_o(p)) && unwritten(p->lse, problem_elements_lse(p)) &&
         unwritten(p->grad_q, problem_elements_q(p)) && unwritten(p->grad_k, problem_elements_kv(p)) &&
         unwritten(p->grad_v, problem_elements_kv(p));
}

int problem_guards_untouched(const problem* p) {
  const size_t q = problem_elements_q(p);
  const size_t kv = problem_elements_kv(p);
  const size_t o = problem_elements_o(p);
  return unwritten(p->q + q, GUARD) && unwritten(p->k + kv, GUARD) && unwritten(p->v + kv, GUARD) &&
         unwritten(p->grad_o + o, GUARD) && unwritten(p->o + o, GUARD) &&
         unwritten(p->lse + problem_elements_lse(p), GUARD) && unwritten(p->grad_q + q, GUARD) &&
         unwritten(p->grad_k + kv, GUARD) && unwritten(p->grad_v + kv, GUARD);
}
