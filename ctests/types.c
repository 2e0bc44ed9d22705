/* Start values of the structs, and what becomes of a struct_size that is not that of this version. */
#include <jfa/jfa.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"
#include "support/problem.h"

static const int32_t Q_OFFSETS[] = {0, 3};
static const int32_t KV_OFFSETS[] = {0, 6};

/* A struct as a later version would pass it: with fields that this one does not know. */
enum { LATER = 24 };
typedef struct {
  union {
    size_t struct_size;
    jfa_plan_desc desc;
    jfa_batch batch;
    jfa_forward_args forward;
    jfa_backward_args backward;
    jfa_plan_details details;
    unsigned char bytes[sizeof(jfa_plan_details) + sizeof(jfa_backward_args) + LATER];
  } u;
} grown;

static problem p;
static jfa_plan* plan;
static void* memory;

static jfa_status call_create(const grown* g) {
  jfa_plan* made = NULL;
  const jfa_status status = jfa_plan_create(&g->u.desc, &made);
  CHECK((made != NULL) == (status == JFA_STATUS_SUCCESS));
  jfa_plan_destroy(made);
  return status;
}

static jfa_status call_update(const grown* g) { return jfa_plan_update(plan, &g->u.batch, NULL); }
static jfa_status call_forward(const grown* g) { return jfa_forward(plan, &g->u.forward, NULL); }
static jfa_status call_backward(const grown* g) { return jfa_backward(plan, &g->u.backward, NULL); }

/* Passes the `size` bytes of `good` with every kind of struct_size; the first version had `first_size`. */
static void sizes(const char* name, jfa_status (*call)(const grown*), const void* good, size_t size,
                  size_t first_size) {
  const size_t truncated[] = {0, 1, 8, first_size / 2, first_size - 8, first_size - 1};
  grown g;
  memset(&g, 0, sizeof(g));
  memcpy(&g, good, size);
  for (size_t i = 0; i < sizeof(truncated) / sizeof(truncated[0]); i++) {
    g.u.struct_size = truncated[i];
    CHECK_ERROR(call(&g), JFA_STATUS_STRUCT_SIZE, name, "struct_size", "sizeof");
  }
  g.u.struct_size = SIZE_MAX;
  CHECK_ERROR(call(&g), JFA_STATUS_STRUCT_SIZE, name, "struct_size", "sizeof");

  /* An earlier version's struct ends before the newer fields, which then have their start values. */
  memset(g.u.bytes + first_size, 0xff, size - first_size);
  g.u.struct_size = first_size;
  CHECK_OK(call(&g));
  memcpy(&g, good, size);

  /* A later version's struct is fine as long as its new fields are unset. */
  g.u.struct_size = size + LATER;
  CHECK_OK(call(&g));
  g.u.bytes[size] = 1;
  CHECK_ERROR(call(&g), JFA_STATUS_STRUCT_SIZE, name, "later version");
  g.u.bytes[size] = 0;
  g.u.bytes[size + LATER - 1] = 0x80;
  CHECK_ERROR(call(&g), JFA_STATUS_STRUCT_SIZE, name, "later version");
  /* What lies behind the struct is none of its business. */
  g.u.struct_size = size + LATER - 1;
  CHECK_OK(call(&g));
  g.u.struct_size = size;
  CHECK_OK(call(&g));
}

/* The one struct that is written: only the bytes that the caller has, and that this version knows. */
static void details_sizes(void) {
  const size_t size = sizeof(jfa_plan_details);
  grown g;
  memset(&g, 0x5a, sizeof(g));
  g.u.struct_size = 0;
  CHECK_ERROR(jfa_plan_info(plan, &g.u.details), JFA_STATUS_STRUCT_SIZE, "jfa_plan_details", "struct_size is 0");
  g.u.struct_size = size - 1;
  CHECK_ERROR(jfa_plan_info(plan, &g.u.details), JFA_STATUS_STRUCT_SIZE, "jfa_plan_details", "struct_size");
  CHECK(g.u.details.arch[0] == 0x5a);
  g.u.struct_size = size + LATER;
  CHECK_OK(jfa_plan_info(plan, &g.u.details));
  CHECK(g.u.struct_size == size + LATER);
  CHECK(g.u.details.forward_block_m > 0 && g.u.details.forward_block_m < 4096);
  for (size_t i = size; i < size + LATER; i++) {
    CHECK(g.u.bytes[i] == 0x5a);
  }
}

static int tensor_is_empty(const void* data, int64_t row_stride, int64_t head_stride) {
  return data == NULL && row_stride == 0 && head_stride == 0;
}

#define TENSOR_IS_EMPTY(t) tensor_is_empty((t).data, (t).row_stride, (t).head_stride)

static void start_values(void) {
  const jfa_plan_desc d = JFA_PLAN_DESC_INIT;
  CHECK(d.struct_size == sizeof(d));
  CHECK(d.device_type == JFA_DEVICE_TYPE_CPU && d.device_index == 0);
  CHECK(d.dtype == JFA_DTYPE_UNSPECIFIED && d.grad_q_dtype == JFA_DTYPE_UNSPECIFIED);
  CHECK(d.index_type == JFA_INDEX_TYPE_INT32);
  CHECK(d.heads_q == 0 && d.heads_kv == 0 && d.head_dim == 0);
  CHECK(d.window_left == -1 && d.window_right == -1);
  CHECK(d.alignment == JFA_ALIGNMENT_TOP_LEFT);
  CHECK(d.scale == 0 && d.flags == 0 && d.max_workers == 0);
  CHECK(d.max_batch == 0 && d.max_total_q == 0 && d.max_total_kv == 0);
  CHECK(d.max_seqlen_q == 0 && d.max_seqlen_kv == 0);

  const jfa_batch b = JFA_BATCH_INIT;
  CHECK(b.struct_size == sizeof(b) && b.batch == 0 && b.total_q == -1 && b.total_kv == -1);
  CHECK(b.q_offsets == NULL && b.kv_offsets == NULL && b.kv_lengths == NULL);

  const jfa_tensor t = JFA_TENSOR_INIT;
  const jfa_const_tensor c = JFA_TENSOR_INIT;
  CHECK(TENSOR_IS_EMPTY(t) && TENSOR_IS_EMPTY(c));

  const jfa_forward_args f = JFA_FORWARD_ARGS_INIT;
  CHECK(f.struct_size == sizeof(f));
  CHECK(TENSOR_IS_EMPTY(f.q) && TENSOR_IS_EMPTY(f.k) && TENSOR_IS_EMPTY(f.v) && TENSOR_IS_EMPTY(f.o));
  CHECK(f.lse == NULL && f.workspace == NULL && f.workspace_size == 0);

  const jfa_backward_args a = JFA_BACKWARD_ARGS_INIT;
  CHECK(a.struct_size == sizeof(a));
  CHECK(TENSOR_IS_EMPTY(a.q) && TENSOR_IS_EMPTY(a.k) && TENSOR_IS_EMPTY(a.v) && TENSOR_IS_EMPTY(a.o));
  CHECK(TENSOR_IS_EMPTY(a.grad_o) && TENSOR_IS_EMPTY(a.grad_q));
  CHECK(TENSOR_IS_EMPTY(a.grad_k) && TENSOR_IS_EMPTY(a.grad_v));
  CHECK(a.lse == NULL && a.workspace == NULL && a.workspace_size == 0);
  CHECK(a.accumulate == 0 && a.reserved == 0);
}

int main(void) {
  start_values();
  problem_init(&p, 2, 2, 16, 1, 0, Q_OFFSETS, KV_OFFSETS, NULL);
  CHECK_OK(jfa_plan_create(&p.desc, &plan));
  size_t forward_size = 0;
  size_t backward_size = 0;
  CHECK_OK(jfa_plan_workspace_size(plan, &forward_size, &backward_size));
  memory = problem_memory(forward_size > backward_size ? forward_size : backward_size);
  const jfa_forward_args forward = problem_forward_args(&p, memory, forward_size);
  const jfa_backward_args backward = problem_backward_args(&p, memory, backward_size);

  sizes("jfa_plan_desc", call_create, &p.desc, sizeof(p.desc), sizeof(p.desc));
  sizes("jfa_batch", call_update, &p.batch, sizeof(p.batch), sizeof(p.batch));
  details_sizes();
  sizes("jfa_forward_args", call_forward, &forward, sizeof(forward), sizeof(forward));
  sizes("jfa_backward_args", call_backward, &backward, sizeof(backward), offsetof(jfa_backward_args, accumulate));

  free(memory);
  jfa_plan_destroy(plan);
  problem_free(&p);
  return check_summary();
}
