/* jfa_combine(): the keys of a batch in two parts give the forward of the whole; with the merged O and LSE, the
   backward of the parts gives its gradients. And everything that it refuses. */
#include <jfa/jfa.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"
#include "support/problem.h"

enum { BATCH = 3, QUERIES = 6, HEADS = 2, DIM = 16, KEYS = 20, WIDTH = HEADS * DIM };
static const int32_t WHOLE[] = {0, 7, 7, KEYS};
/* The parts of each sequence: keys `begin .. begin + length`, given as slots with lengths. */
static const int32_t SLOTS[2][BATCH + 1] = {{0, 7, 7, KEYS}, {3, 7, 7, KEYS}};
static const int32_t FIRST_LENGTHS[] = {3, 0, 13};
static const int32_t SECOND_LENGTHS[] = {4, 0, 0};

/* What one call of forward and backward gives. */
typedef struct {
  float o[BATCH * QUERIES * WIDTH];
  float lse[BATCH * HEADS * QUERIES];
  float grad_q[QUERIES * WIDTH];
  float grad_k[KEYS * WIDTH];
  float grad_v[KEYS * WIDTH];
} results;

static _Alignas(16) float q[QUERIES * WIDTH];
static _Alignas(16) float k[KEYS * WIDTH];
static _Alignas(16) float v[KEYS * WIDTH];
static _Alignas(16) float grad_o[BATCH * QUERIES * WIDTH];

static void fill(float* values, size_t count, uint32_t seed) {
  for (size_t i = 0; i < count; i++) {
    seed = seed * UINT32_C(1664525) + UINT32_C(1013904223);
    values[i] = (float)(seed >> 8) / (float)(1 << 23) - 1;
  }
}

/* Forward into `r`, and if `merged` is given, the backward of its O and LSE over the same keys. */
static void attend(const int32_t* offsets, const int32_t* lengths, results* r, const results* merged) {
  jfa_plan_desc desc = JFA_PLAN_DESC_INIT;
  desc.dtype = JFA_DTYPE_FP32;
  desc.heads_q = desc.heads_kv = HEADS;
  desc.head_dim = DIM;
  desc.flags = JFA_BROADCAST_Q;
  desc.max_batch = BATCH;
  desc.max_total_kv = desc.max_seqlen_kv = KEYS;
  desc.max_seqlen_q = QUERIES;
  jfa_plan* plan = NULL;
  CHECK_OK(jfa_plan_create(&desc, &plan));
  jfa_batch batch = JFA_BATCH_INIT;
  batch.batch = BATCH;
  batch.kv_offsets = offsets;
  batch.kv_lengths = lengths;
  CHECK_OK(jfa_plan_update(plan, &batch, NULL));
  size_t forward_size = 0;
  size_t backward_size = 0;
  CHECK_OK(jfa_plan_workspace_size(plan, &forward_size, &backward_size));
  void* memory = problem_memory(forward_size > backward_size ? forward_size : backward_size);

  jfa_forward_args f = JFA_FORWARD_ARGS_INIT;
  f.q.data = q;
  f.k.data = k;
  f.v.data = v;
  f.o.data = r->o;
  f.lse = r->lse;
  f.workspace = memory;
  f.workspace_size = forward_size;
  CHECK_OK(jfa_forward(plan, &f, NULL));
  if (merged != NULL) {
    jfa_backward_args b = JFA_BACKWARD_ARGS_INIT;
    b.q.data = q;
    b.k.data = k;
    b.v.data = v;
    b.o.data = merged->o;
    b.grad_o.data = grad_o;
    b.lse = merged->lse;
    b.grad_q.data = r->grad_q;
    b.grad_k.data = r->grad_k;
    b.grad_v.data = r->grad_v;
    b.workspace = memory;
    b.workspace_size = backward_size;
    CHECK_OK(jfa_backward(plan, &b, NULL));
  }
  free(memory);
  jfa_plan_destroy(plan);
}

static results* make_results(void) {
  results* r = problem_memory(sizeof(results));
  memset(r, 0, sizeof(*r));
  return r;
}

static jfa_combine_args arguments(const jfa_part* parts, int64_t count, results* out) {
  jfa_combine_args a = JFA_COMBINE_ARGS_INIT;
  a.dtype = JFA_DTYPE_FP32;
  a.heads = HEADS;
  a.head_dim = DIM;
  a.batch = BATCH;
  a.rows = QUERIES;
  a.num_parts = count;
  a.parts = parts;
  a.o.data = out->o;
  a.lse = out->lse;
  return a;
}

static int close_to(const float* a, const float* b, const float* more, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const float sum = more == NULL ? b[i] : b[i] + more[i];
    if (a[i] != sum && !(fabsf(a[i] - sum) < 1e-5f)) {
      return 0;
    }
  }
  return 1;
}

#define CLOSE(a, b) CHECK(close_to(a, b, NULL, sizeof(a) / sizeof(float)))
#define CLOSE_TO_SUM(a, b, c) CHECK(close_to(a, b, c, sizeof(a) / sizeof(float)))

static void parts_make_the_whole(results* const r[2], const jfa_part parts[2]) {
  results* whole = make_results();
  results* merged = make_results();
  attend(WHOLE, NULL, whole, NULL);
  attend(WHOLE, NULL, whole, whole);
  const jfa_combine_args args = arguments(parts, 2, merged);
  CHECK_OK(jfa_combine(&args, NULL));
  CLOSE(whole->o, merged->o);
  CLOSE(whole->lse, merged->lse);
  CHECK(merged->o[QUERIES * WIDTH] == 0 && merged->lse[HEADS * QUERIES] == -INFINITY);
  /* The parts' own results are overwritten by their backward's forward with the same. */
  attend(SLOTS[0], FIRST_LENGTHS, r[0], merged);
  attend(SLOTS[1], SECOND_LENGTHS, r[1], merged);
  CLOSE_TO_SUM(whole->grad_q, r[0]->grad_q, r[1]->grad_q);
  CLOSE_TO_SUM(whole->grad_k, r[0]->grad_k, r[1]->grad_k);
  CLOSE_TO_SUM(whole->grad_v, r[0]->grad_v, r[1]->grad_v);

  /* Without LSE; with one part, which is kept bit by bit. */
  jfa_combine_args one = arguments(parts, 1, merged);
  one.lse = NULL;
  memset(merged, 0, sizeof(*merged));
  CHECK_OK(jfa_combine(&one, NULL));
  CHECK(memcmp(merged->o, r[0]->o, sizeof(merged->o)) == 0 && merged->lse[0] == 0);
  free(whole);
  free(merged);
}

static const jfa_part* good_parts;
static results* out;

#define REFUSE(change, status, ...)                            \
  do {                                                         \
    jfa_part p[2] = {good_parts[0], good_parts[1]};            \
    jfa_combine_args a = arguments(p, 2, out);                 \
    memset(out, 0x5a, sizeof(*out));                           \
    change;                                                    \
    CHECK_ERROR(jfa_combine(&a, NULL), (status), __VA_ARGS__); \
    for (size_t i = 0; i < sizeof(*out); i++) {                \
      if (((const unsigned char*)out)[i] != 0x5a) {            \
        CHECK(!"written");                                     \
        break;                                                 \
      }                                                        \
    }                                                          \
  } while (0)

static void refusals(void) {
  const jfa_status invalid = JFA_STATUS_INVALID_ARGUMENT;
  const jfa_status null_pointer = JFA_STATUS_NULL_POINTER;
  const jfa_status misaligned = JFA_STATUS_MISALIGNED;
  CHECK_ERROR(jfa_combine(NULL, NULL), null_pointer, "jfa_combine_args", "null");
  REFUSE(a.struct_size = 8, JFA_STATUS_STRUCT_SIZE, "jfa_combine_args.struct_size is 8");
  REFUSE(a.device_type = 2, invalid, "device_type is 2");
  REFUSE(a.device_index = 1, invalid, "device_index is 1", "JFA_DEVICE_TYPE_CPU");
  REFUSE(a.dtype = 0, invalid, "dtype is JFA_DTYPE_UNSPECIFIED");
  REFUSE(a.dtype = 9, invalid, "dtype is 9");
  REFUSE(a.part_dtype = JFA_DTYPE_BF16, invalid, "part_dtype is Bf16", "JFA_DTYPE_FP32");
  REFUSE(a.heads = 0, invalid, "heads is 0", "1 to 4096");
  REFUSE(a.head_dim = 12, invalid, "head_dim is 12", "multiple of 8");
  REFUSE(a.head_dim = 264, invalid, "head_dim is 264", "8 to 256");
  REFUSE(a.batch = -1, invalid, "batch is -1");
  REFUSE(a.rows = -1, invalid, "rows is -1");
  REFUSE(a.rows = INT64_C(1) << 40, invalid, "batch * rows is 3298534883328", "2^40");
  REFUSE(a.num_parts = 0, invalid, "num_parts is 0", "1 to 64");
  REFUSE(a.num_parts = 65, invalid, "num_parts is 65", "1 to 64");
  REFUSE(a.parts = NULL, null_pointer, "parts is null");
  REFUSE(p[1].o.data = NULL, null_pointer, "parts[1].o is null");
  REFUSE(p[0].lse = NULL, null_pointer, "parts[0].lse is null");
  REFUSE(a.o.data = NULL, null_pointer, "o is null");
  REFUSE(p[1].o.data = (const float*)p[1].o.data + 1, misaligned, "parts[1].o is 0x", "16 bytes");
  REFUSE(p[1].lse = (const float*)((const char*)p[1].lse + 2), misaligned, "parts[1].lse is 0x", "4 bytes");
  REFUSE(a.o.data = out->o + 1, misaligned, "o is 0x", "16 bytes");
  REFUSE(a.lse = (float*)((char*)out->lse + 2), misaligned, "lse is 0x", "4 bytes");
  REFUSE(a.o.row_stride = WIDTH + 1, misaligned, "o.row_stride is 33", "16 bytes");
  REFUSE(p[0].o.head_stride = DIM + 2, misaligned, "parts[0].o.head_stride is 18", "16 bytes");
  REFUSE(p[0].o.row_stride = -WIDTH, invalid, "parts[0].o.row_stride is -32", "contiguous");
  REFUSE(a.o.head_stride = 8, invalid, "o.head_stride is 8", "head_dim = 16");
  REFUSE(a.o.row_stride = INT64_MAX, invalid, "o.row_stride is 92233720", "2^40");
  REFUSE(a.o.row_stride = DIM, invalid, "its rows overlap");
  REFUSE(p[1].o.data = out->o, invalid, "o overlaps parts[1].o");
  REFUSE(p[1].lse = out->lse + 1, invalid, "lse overlaps parts[1].lse");
  REFUSE(a.lse = out->o + BATCH * QUERIES * WIDTH - 1, invalid, "o overlaps lse");
  REFUSE(p[0].lse = out->o, invalid, "o overlaps parts[0].lse");
  REFUSE(p[0].o.data = out->o + (BATCH * QUERIES - 1) * WIDTH, invalid, "o overlaps parts[0].o");
}

int main(void) {
  fill(q, sizeof(q) / sizeof(float), 1);
  fill(k, sizeof(k) / sizeof(float), 2);
  fill(v, sizeof(v) / sizeof(float), 3);
  fill(grad_o, sizeof(grad_o) / sizeof(float), 4);
  results* r[2] = {make_results(), make_results()};
  attend(SLOTS[0], FIRST_LENGTHS, r[0], NULL);
  attend(SLOTS[1], SECOND_LENGTHS, r[1], NULL);
  const jfa_part parts[2] = {{{r[0]->o, 0, 0}, r[0]->lse}, {{r[1]->o, 0, 0}, r[1]->lse}};
  parts_make_the_whole(r, parts);
  out = make_results();
  good_parts = parts;
  refusals();

  /* No rows: nothing is needed. */
  const jfa_part none = {JFA_TENSOR_INIT, NULL};
  jfa_combine_args empty = arguments(&none, 1, out);
  empty.rows = 0;
  empty.o.data = NULL;
  empty.lse = NULL;
  CHECK_OK(jfa_combine(&empty, NULL));
  free(out);
  free(r[0]);
  free(r[1]);
  return check_summary();
}
