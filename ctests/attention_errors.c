/* Everything that jfa_forward() and jfa_backward() refuse, by status and by what the message names; nothing is written
   then. */
#include <jfa/jfa.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/check.h"
#include "support/problem.h"

static const int32_t Q_OFFSETS[] = {0, 3, 10};
static const int32_t KV_OFFSETS[] = {0, 6, 20};
enum { HEADS = 2, DIM = 16, WIDTH = HEADS * DIM };

static problem p;
static jfa_plan* plan;
static jfa_forward_args good_forward;
static jfa_backward_args good_backward;
static size_t forward_size;
static size_t backward_size;

/* Changes one thing in good arguments and checks that the call is refused and writes nothing. */
#define REFUSE_FORWARD(change, status, ...)                               \
  do {                                                                    \
    jfa_forward_args a = good_forward;                                    \
    change;                                                               \
    CHECK_ERROR(jfa_forward(plan, &a, NULL), status, __VA_ARGS__);        \
    CHECK(problem_outputs_untouched(&p) && problem_guards_untouched(&p)); \
  } while (0)

#define REFUSE_BACKWARD(change, status, ...)                              \
  do {                                                                    \
    jfa_backward_args a = good_backward;                                  \
    change;                                                               \
    CHECK_ERROR(jfa_backward(plan, &a, NULL), status, __VA_ARGS__);       \
    CHECK(problem_outputs_untouched(&p) && problem_guards_untouched(&p)); \
  } while (0)

/* What every tensor of a call must obey. `REFUSE` is one of the two above, `name` a field of its arguments. */
#define REFUSE_TENSOR(REFUSE, name)                                                                              \
  do {                                                                                                           \
    REFUSE(a.name.data = NULL, JFA_STATUS_NULL_POINTER, #name " is null");                                       \
    REFUSE(a.name.data = p.name + 1, JFA_STATUS_MISALIGNED, #name " is 0x", "16 bytes");                         \
    REFUSE(a.name.row_stride = WIDTH + 1, JFA_STATUS_MISALIGNED, #name ".row_stride is 33", "16 bytes");         \
    REFUSE(a.name.head_stride = DIM + 2, JFA_STATUS_MISALIGNED, #name ".head_stride is 18", "16 bytes");         \
    REFUSE(a.name.row_stride = -WIDTH, JFA_STATUS_INVALID_ARGUMENT, #name ".row_stride is -32", "contiguous");   \
    REFUSE(a.name.head_stride = 8, JFA_STATUS_INVALID_ARGUMENT, #name ".head_stride is 8", "head_dim = 16");     \
    REFUSE(a.name.row_stride = INT64_MAX, JFA_STATUS_INVALID_ARGUMENT, #name ".row_stride is 92233720", "2^40"); \
  } while (0)

static void forward(void) {
  const jfa_status invalid = JFA_STATUS_INVALID_ARGUMENT;
  CHECK_ERROR(jfa_forward(NULL, &good_forward, NULL), JFA_STATUS_NULL_POINTER, "plan is null");
  CHECK_ERROR(jfa_forward(plan, NULL, NULL), JFA_STATUS_NULL_POINTER, "jfa_forward_args", "null");
  REFUSE_TENSOR(REFUSE_FORWARD, q);
  REFUSE_TENSOR(REFUSE_FORWARD, k);
  REFUSE_TENSOR(REFUSE_FORWARD, v);
  REFUSE_TENSOR(REFUSE_FORWARD, o);
  REFUSE_FORWARD(a.lse = (float*)((char*)p.lse + 2), JFA_STATUS_MISALIGNED, "lse is 0x", "4 bytes");

  REFUSE_FORWARD(a.o.data = p.q, invalid, "q overlaps o");
  REFUSE_FORWARD(a.o.data = p.k + 4, invalid, "k overlaps o");
  REFUSE_FORWARD(a.o.data = p.v, invalid, "v overlaps o");
  REFUSE_FORWARD(a.lse = p.o, invalid, "o overlaps lse");
  REFUSE_FORWARD(a.lse = p.o + problem_elements_o(&p) - 1, invalid, "o overlaps lse");
  REFUSE_FORWARD(a.lse = p.q, invalid, "q overlaps lse");
  REFUSE_FORWARD(a.o.row_stride = DIM, invalid, "o has row_stride 16", "rows overlap");
}

static void backward(void) {
  const jfa_status invalid = JFA_STATUS_INVALID_ARGUMENT;
  CHECK_ERROR(jfa_backward(NULL, &good_backward, NULL), JFA_STATUS_NULL_POINTER, "plan is null");
  CHECK_ERROR(jfa_backward(plan, NULL, NULL), JFA_STATUS_NULL_POINTER, "jfa_backward_args", "null");
  REFUSE_TENSOR(REFUSE_BACKWARD, q);
  REFUSE_TENSOR(REFUSE_BACKWARD, k);
  REFUSE_TENSOR(REFUSE_BACKWARD, v);
  REFUSE_TENSOR(REFUSE_BACKWARD, o);
  REFUSE_TENSOR(REFUSE_BACKWARD, grad_o);
  REFUSE_TENSOR(REFUSE_BACKWARD, grad_q);
  REFUSE_TENSOR(REFUSE_BACKWARD, grad_k);
  REFUSE_TENSOR(REFUSE_BACKWARD, grad_v);
  REFUSE_BACKWARD(a.lse = NULL, JFA_STATUS_NULL_POINTER, "lse is null");
  REFUSE_BACKWARD(a.lse = (float*)((char*)p.lse + 1), JFA_STATUS_MISALIGNED, "lse is 0x", "4 bytes");

  REFUSE_BACKWARD(a.grad_q.data = p.q, invalid, "q overlaps grad_q");
  REFUSE_BACKWARD(a.grad_q.data = p.grad_o, invalid, "grad_o overlaps grad_q");
  REFUSE_BACKWARD(a.grad_k.data = p.k + 4, invalid, "k overlaps grad_k");
  REFUSE_BACKWARD(a.grad_v.data = p.grad_k, invalid, "grad_k overlaps grad_v");
  REFUSE_BACKWARD(a.grad_v.data = p.grad_k + DIM, invalid, "grad_k overlaps grad_v");
  REFUSE_BACKWARD(a.lse = p.grad_q, invalid, "grad_q overlaps lse");
  REFUSE_BACKWARD(a.grad_k.row_stride = DIM, invalid, "grad_k has row_stride 16", "rows overlap");

  REFUSE_BACKWARD(a.accumulate = 8, invalid, "accumulate is 0x8", "JFA_ACCUMULATE_GRAD_V");
  REFUSE_BACKWARD(a.accumulate = JFA_ACCUMULATE_GRAD_Q | UINT32_C(0x80000000), invalid, "accumulate is 0x80000001");
  REFUSE_BACKWARD(a.reserved = 1, invalid, "reserved is 1");
}

/* The workspace is checked only if the device needs one. */
static void workspace(void) {
  if (forward_size == 0) {
    printf("the forward needs no workspace\n");
  } else {
    REFUSE_FORWARD(a.workspace_size = forward_size - 1, JFA_STATUS_WORKSPACE_TOO_SMALL, "workspace_size is", "needs");
    REFUSE_FORWARD(a.workspace_size = 0, JFA_STATUS_WORKSPACE_TOO_SMALL, "workspace_size is 0", "needs");
    REFUSE_FORWARD(a.workspace = NULL, JFA_STATUS_NULL_POINTER, "workspace is null");
    REFUSE_FORWARD(a.workspace = (char*)a.workspace + 128, JFA_STATUS_MISALIGNED, "workspace is 0x", "256 bytes");
    REFUSE_FORWARD(a.workspace = p.o, JFA_STATUS_INVALID_ARGUMENT, "o overlaps workspace");
  }
  if (backward_size == 0) {
    printf("the backward needs no workspace\n");
  } else {
    REFUSE_BACKWARD(a.workspace_size = backward_size - 1, JFA_STATUS_WORKSPACE_TOO_SMALL, "workspace_size is", "needs");
    REFUSE_BACKWARD(a.workspace_size = 0, JFA_STATUS_WORKSPACE_TOO_SMALL, "workspace_size is 0", "needs");
    REFUSE_BACKWARD(a.workspace = NULL, JFA_STATUS_NULL_POINTER, "workspace is null");
    REFUSE_BACKWARD(a.workspace = (char*)a.workspace + 64, JFA_STATUS_MISALIGNED, "workspace is 0x", "256 bytes");
    REFUSE_BACKWARD(a.workspace = p.grad_q, JFA_STATUS_INVALID_ARGUMENT, "grad_q overlaps workspace");
  }
}

/* What looks odd but is allowed. */
static void accepted(void) {
  jfa_forward_args a = good_forward;
  a.v = a.k;
  CHECK_OK(jfa_forward(plan, &a, NULL));
  a = good_forward;
  a.lse = NULL;
  CHECK_OK(jfa_forward(plan, &a, NULL));
  CHECK_OK(jfa_forward(plan, &good_forward, NULL));
  CHECK_OK(jfa_backward(plan, &good_backward, NULL));
  CHECK(problem_guards_untouched(&p));
}

int main(void) {
  problem_init(&p, HEADS, HEADS, DIM, 2, 0, Q_OFFSETS, KV_OFFSETS, NULL);
  CHECK_OK(jfa_plan_create(&p.desc, &plan));
  CHECK_OK(jfa_plan_update(plan, &p.batch, NULL));
  CHECK_OK(jfa_plan_workspace_size(plan, &forward_size, &backward_size));
  void* memory = problem_memory((forward_size > backward_size ? forward_size : backward_size) + 256);
  good_forward = problem_forward_args(&p, memory, forward_size);
  good_backward = problem_backward_args(&p, memory, backward_size);
  forward();
  backward();
  workspace();
  accepted();
  free(memory);
  jfa_plan_destroy(plan);
  problem_free(&p);
  return check_summary();
}
