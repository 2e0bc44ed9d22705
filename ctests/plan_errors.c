/* Everything that jfa_plan_create() and jfa_plan_update() refuse, by status and by what the message names. */
#include <jfa/jfa.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"
#include "support/problem.h"

static const int32_t Q_OFFSETS[] = {0, 3, 10, 12};
static const int32_t KV_OFFSETS[] = {0, 4, 9, 20};
enum { BATCH = 3 };

static problem p;

/* Sets one field of a good description and checks that it is refused; `plan` must become NULL. */
#define REFUSE(field, value, status, ...)                            \
  do {                                                               \
    jfa_plan_desc desc = p.desc;                                     \
    jfa_plan* plan = (jfa_plan*)&p;                                  \
    desc.field = (value);                                            \
    CHECK_ERROR(jfa_plan_create(&desc, &plan), status, __VA_ARGS__); \
    CHECK(plan == NULL);                                             \
  } while (0)

static void description(void) {
  const jfa_status invalid = JFA_STATUS_INVALID_ARGUMENT;
  jfa_plan* plan = (jfa_plan*)&p;
  CHECK_ERROR(jfa_plan_create(NULL, &plan), JFA_STATUS_NULL_POINTER, "jfa_plan_desc", "null");
  CHECK(plan == NULL);
  CHECK_ERROR(jfa_plan_create(&p.desc, NULL), JFA_STATUS_NULL_POINTER, "plan is null");

  REFUSE(device_type, 7, invalid, "device_type is 7", "jfa_device_type");
  REFUSE(device_type, -1, invalid, "device_type is -1");
  REFUSE(device_index, 3, invalid, "device_index is 3", "JFA_DEVICE_TYPE_CPU");
  REFUSE(device_index, -1, invalid, "device_index is -1");
  REFUSE(dtype, JFA_DTYPE_UNSPECIFIED, invalid, "dtype is JFA_DTYPE_UNSPECIFIED");
  REFUSE(dtype, 4, invalid, "dtype is 4", "jfa_dtype");
  REFUSE(dtype, INT32_MIN, invalid, "dtype is -2147483648");
  REFUSE(grad_q_dtype, 9, invalid, "grad_q_dtype is 9", "jfa_dtype");
  REFUSE(grad_q_dtype, JFA_DTYPE_FP16, invalid, "grad_q_dtype", "JFA_DTYPE_FP32");
  REFUSE(index_type, 2, invalid, "index_type is 2", "jfa_index_type");
  REFUSE(heads_q, 0, invalid, "heads_q is 0");
  REFUSE(heads_q, -2, invalid, "heads_q is -2");
  REFUSE(heads_q, 4098, invalid, "heads_q is 4098", "4096");
  REFUSE(heads_q, 3, invalid, "heads_q is 3", "a multiple of heads_kv = 2");
  REFUSE(heads_q, 1, invalid, "heads_q is 1", "a multiple of heads_kv = 2");
  REFUSE(heads_kv, 0, invalid, "heads_kv is 0");
  REFUSE(heads_kv, -1, invalid, "heads_kv is -1");
  REFUSE(head_dim, 0, invalid, "head_dim is 0", "a multiple of 8 from 8 to 256");
  REFUSE(head_dim, 7, invalid, "head_dim is 7", "a multiple of 8 from 8 to 256");
  REFUSE(head_dim, 12, invalid, "head_dim is 12", "a multiple of 8 from 8 to 256");
  REFUSE(head_dim, 264, invalid, "head_dim is 264", "a multiple of 8 from 8 to 256");
  REFUSE(head_dim, -8, invalid, "head_dim is -8", "a multiple of 8 from 8 to 256");
  REFUSE(window_left, -2, invalid, "window_left is -2", "-1 (unbounded)");
  REFUSE(window_right, -5, invalid, "window_right is -5", "-1 (unbounded)");
  REFUSE(alignment, 2, invalid, "alignment is 2", "jfa_alignment");
  REFUSE(scale, NAN, invalid, "scale is NaN", "finite");
  REFUSE(scale, INFINITY, invalid, "scale is inf", "finite");
  REFUSE(scale, -INFINITY, invalid, "scale is -inf", "finite");
  REFUSE(flags, 4, invalid, "flags is 0x4", "JFA_BROADCAST_Q");
  REFUSE(flags, UINT32_C(0x80000001), invalid, "flags is 0x80000001");
  REFUSE(max_workers, -1, invalid, "max_workers is -1");
  REFUSE(max_batch, -1, invalid, "max_batch is -1");
  REFUSE(max_batch, (INT64_C(1) << 20) + 1, invalid, "max_batch is 1048577", "1048576");
  REFUSE(max_total_q, -1, invalid, "max_total_q is -1");
  REFUSE(max_total_kv, -1, invalid, "max_total_kv is -1");
  REFUSE(max_total_kv, INT64_MAX, invalid, "max_total_kv is 9223372036854775807");
  REFUSE(max_seqlen_q, -1, invalid, "max_seqlen_q is -1");
  REFUSE(max_seqlen_kv, INT64_C(1) << 31, invalid, "max_seqlen_kv is 2147483648");
}

/* A CUDA plan where no such device is: a status that says which of the three reasons, and words. */
static void cuda_device(int32_t index, int must_fail) {
  jfa_plan_desc desc = p.desc;
  jfa_plan* plan = NULL;
  desc.device_type = JFA_DEVICE_TYPE_CUDA;
  desc.device_index = index;
  desc.dtype = JFA_DTYPE_BF16;
  const jfa_status status = jfa_plan_create(&desc, &plan);
  if (status == JFA_STATUS_SUCCESS && !must_fail) {
    printf("there is a CUDA device %d\n", (int)index);
    jfa_plan_destroy(plan);
    return;
  }
  CHECK(status == JFA_STATUS_UNSUPPORTED || status == JFA_STATUS_NO_DRIVER || status == JFA_STATUS_NO_DEVICE);
  CHECK_ERROR(status, status, "CUDA");
  CHECK(plan == NULL);
  printf("CUDA device %d: %s: %s\n", (int)index, jfa_status_string(status), jfa_last_error());
}

/* The plan refuses to run after a failed update, and says why; nothing is written. */
static void refuses_to_run(jfa_plan* plan, const char* word) {
  jfa_plan_details details;
  details.struct_size = sizeof(details);
  details.forward_tiles = 77;
  jfa_forward_args forward = problem_forward_args(&p, NULL, 0);
  jfa_backward_args backward = problem_backward_args(&p, NULL, 0);
  CHECK_ERROR(jfa_plan_check(plan), JFA_STATUS_NOT_READY, "jfa_plan_update", word);
  CHECK_ERROR(jfa_plan_info(plan, &details), JFA_STATUS_NOT_READY, "jfa_plan_update", word);
  CHECK_ERROR(jfa_forward(plan, &forward, NULL), JFA_STATUS_NOT_READY, "jfa_plan_update", word);
  CHECK_ERROR(jfa_backward(plan, &backward, NULL), JFA_STATUS_NOT_READY, "jfa_plan_update", word);
  CHECK(details.forward_tiles == 77);
  CHECK(problem_outputs_untouched(&p));
}

/* An update that breaks a rule, between two good ones. */
static void refuse_update(jfa_plan* plan, const jfa_batch* batch, jfa_status status, const char* word,
                          const char* second) {
  CHECK_OK(jfa_plan_update(plan, &p.batch, NULL));
  CHECK_OK(jfa_plan_check(plan));
  CHECK_ERROR(jfa_plan_update(plan, batch, NULL), status, word, second);
  refuses_to_run(plan, word);
}

static void update(jfa_plan* plan) {
  const jfa_status invalid = JFA_STATUS_INVALID_ARGUMENT;
  jfa_batch batch = p.batch;
  CHECK_ERROR(jfa_plan_update(NULL, &batch, NULL), JFA_STATUS_NULL_POINTER, "plan is null");
  CHECK_ERROR(jfa_plan_update(plan, NULL, NULL), JFA_STATUS_NULL_POINTER, "jfa_batch", "null");

  batch.batch = -1;
  refuse_update(plan, &batch, invalid, "batch is -1", "max_batch = 3");
  batch.batch = 4;
  refuse_update(plan, &batch, invalid, "batch is 4", "max_batch = 3");
  batch = p.batch;
  batch.total_q = 100;
  refuse_update(plan, &batch, invalid, "total_q is 100", "max_total_q = 15");
  batch.total_q = -2;
  refuse_update(plan, &batch, invalid, "total_q is -2", "max_total_q = 15");
  batch = p.batch;
  batch.total_kv = 24;
  refuse_update(plan, &batch, invalid, "total_kv is 24", "max_total_kv = 23");
  batch.total_kv = -7;
  refuse_update(plan, &batch, invalid, "total_kv is -7", "max_total_kv = 23");
  batch = p.batch;
  batch.q_offsets = NULL;
  refuse_update(plan, &batch, JFA_STATUS_NULL_POINTER, "q_offsets is null", "null");
  batch = p.batch;
  batch.kv_offsets = NULL;
  refuse_update(plan, &batch, JFA_STATUS_NULL_POINTER, "kv_offsets is null", "null");
}

static void offsets(jfa_plan* plan) {
  const jfa_status bad = JFA_STATUS_INVALID_OFFSETS;
  jfa_batch batch = p.batch;
  int32_t values[BATCH + 1] = {0, 7, 3, 12};
  batch.q_offsets = values;
  refuse_update(plan, &batch, bad, "q_offsets[2] is 3", "at least q_offsets[1] = 7");
  values[0] = -4;
  refuse_update(plan, &batch, bad, "q_offsets[0] is -4", "0 or more");
  memcpy(values, Q_OFFSETS, sizeof(values));
  values[3] = 16;
  refuse_update(plan, &batch, bad, "q_offsets[3] is 16", "15 rows");
  values[3] = INT32_MAX;
  refuse_update(plan, &batch, bad, "q_offsets[3] is 2147483647", "15 rows");
  memcpy(values, Q_OFFSETS, sizeof(values));
  values[1] = values[2] = 1;
  refuse_update(plan, &batch, bad, "q_offsets[2]", "max_seqlen_q = 7");

  batch = p.batch;
  batch.kv_offsets = values;
  memcpy(values, KV_OFFSETS, sizeof(values));
  values[3] = 8;
  refuse_update(plan, &batch, bad, "kv_offsets[3] is 8", "at least kv_offsets[2] = 9");
  values[3] = 24;
  refuse_update(plan, &batch, bad, "kv_offsets[3] is 24", "23 rows");
  values[3] = 21;
  refuse_update(plan, &batch, bad, "kv_offsets[2]", "max_seqlen_kv = 11");
  values[0] = INT32_MIN;
  refuse_update(plan, &batch, bad, "kv_offsets[0] is -2147483648", "0 or more");
  /* Fewer rows than the plan's maximum bound the offsets too. */
  batch = p.batch;
  batch.total_kv = 19;
  refuse_update(plan, &batch, bad, "kv_offsets[3] is 20", "19 rows");

  batch = p.batch;
  int32_t lengths[BATCH] = {4, 5, -1};
  batch.kv_lengths = lengths;
  refuse_update(plan, &batch, bad, "kv_lengths[2] is -1", "0 to");
  lengths[1] = 6;
  refuse_update(plan, &batch, bad, "kv_lengths[1] is 6", "the 5 rows of its slot");
}

static void wide_offsets(void) {
  const int64_t q_offsets[BATCH + 1] = {0, 3, 10, 12};
  int64_t kv_offsets[BATCH + 1] = {0, 4, 9, INT64_C(1) << 40};
  jfa_plan_desc desc = p.desc;
  jfa_plan* plan = NULL;
  desc.index_type = JFA_INDEX_TYPE_INT64;
  CHECK_OK(jfa_plan_create(&desc, &plan));
  jfa_batch batch = p.batch;
  batch.q_offsets = q_offsets;
  batch.kv_offsets = kv_offsets;
  CHECK_ERROR(jfa_plan_update(plan, &batch, NULL), JFA_STATUS_INVALID_OFFSETS, "kv_offsets[3] is 1099511627776");
  kv_offsets[0] = INT64_MIN;
  CHECK_ERROR(jfa_plan_update(plan, &batch, NULL), JFA_STATUS_INVALID_OFFSETS, "kv_offsets[0] is -9223372036854775808");
  jfa_plan_destroy(plan);
}

static void broadcast_takes_no_q_offsets(void) {
  jfa_plan_desc desc = p.desc;
  jfa_plan* plan = NULL;
  desc.flags = JFA_BROADCAST_Q;
  CHECK_OK(jfa_plan_create(&desc, &plan));
  CHECK_ERROR(jfa_plan_update(plan, &p.batch, NULL), JFA_STATUS_INVALID_ARGUMENT, "q_offsets", "JFA_BROADCAST_Q");
  jfa_plan_destroy(plan);
}

static void null_plans(void) {
  jfa_plan_details details;
  size_t size = 5;
  details.struct_size = sizeof(details);
  CHECK_ERROR(jfa_plan_info(NULL, &details), JFA_STATUS_NULL_POINTER, "plan is null");
  CHECK_ERROR(jfa_plan_check(NULL), JFA_STATUS_NULL_POINTER, "plan is null");
  CHECK_ERROR(jfa_plan_workspace_size(NULL, &size, &size), JFA_STATUS_NULL_POINTER, "plan is null");
  CHECK(size == 5);
}

int main(void) {
  problem_init(&p, 4, 2, 16, BATCH, 0, Q_OFFSETS, KV_OFFSETS, NULL);
  description();
  cuda_device(0, 0);
  cuda_device(4095, 1);
  REFUSE(device_type, JFA_DEVICE_TYPE_CUDA, JFA_STATUS_UNSUPPORTED, "dtype is JFA_DTYPE_FP32", "JFA_DEVICE_TYPE_CPU");

  jfa_plan* plan = NULL;
  CHECK_OK(jfa_plan_create(&p.desc, &plan));
  refuses_to_run(plan, "call jfa_plan_update first");
  update(plan);
  offsets(plan);
  CHECK_OK(jfa_plan_update(plan, &p.batch, NULL));
  CHECK_OK(jfa_plan_check(plan));
  CHECK_ERROR(jfa_plan_info(plan, NULL), JFA_STATUS_NULL_POINTER, "jfa_plan_details", "null");
  jfa_plan_destroy(plan);

  wide_offsets();
  broadcast_takes_no_q_offsets();
  null_plans();
  problem_free(&p);
  return check_summary();
}
