/* The life of a plan: create, update, info, check, workspace_size, destroy. */
#include <jfa/jfa.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"
#include "support/problem.h"

static const int32_t Q_OFFSETS[] = {0, 3, 70, 70};
static const int32_t KV_OFFSETS[] = {0, 40, 200, 205};
enum { BATCH = 3 };

static int ends(const char* text, size_t size) { return text[0] != '\0' && memchr(text, '\0', size) != NULL; }

static void info_of_batches(problem* p, jfa_plan* plan) {
  jfa_plan_details details;
  memset(&details, 0xff, sizeof(details));
  details.struct_size = sizeof(details);
  CHECK_OK(jfa_plan_update(plan, &p->batch, NULL));
  CHECK_OK(jfa_plan_check(plan));
  CHECK_OK(jfa_plan_info(plan, &details));
  CHECK(details.struct_size == sizeof(details));
  CHECK(strncmp(details.arch, "cpu", 3) == 0 && ends(details.arch, sizeof(details.arch)));
  CHECK(ends(details.forward_kernel, sizeof(details.forward_kernel)));
  CHECK(ends(details.backward_kernel, sizeof(details.backward_kernel)));
  CHECK(details.forward_workers >= 1 && details.forward_workers <= 2);
  CHECK(details.backward_workers >= 1 && details.backward_workers <= 2);
  CHECK(details.forward_cluster == 1 && details.backward_cluster == 1);
  CHECK(details.forward_scheduler >= JFA_SCHEDULER_STATIC && details.forward_scheduler <= JFA_SCHEDULER_ATOMIC);
  CHECK(details.backward_scheduler >= JFA_SCHEDULER_STATIC && details.backward_scheduler <= JFA_SCHEDULER_ATOMIC);
  CHECK(details.forward_block_m > 0 && details.forward_block_n > 0);
  CHECK(details.backward_block_m > 0 && details.backward_block_n > 0);
  CHECK(details.forward_tiles > 0 && details.forward_tiles < 1000);
  CHECK(details.backward_tiles > 0 && details.backward_tiles < 1000);
  CHECK(details.forward_imbalance >= 1 && details.forward_imbalance <= 2);
  CHECK(details.backward_imbalance >= 1 && details.backward_imbalance <= 2);

  /* Half of the batch has fewer tiles, none has none. */
  const uint64_t tiles = details.forward_tiles;
  jfa_batch batch = p->batch;
  batch.batch = 1;
  CHECK_OK(jfa_plan_update(plan, &batch, NULL));
  CHECK_OK(jfa_plan_info(plan, &details));
  CHECK(details.forward_tiles > 0 && details.forward_tiles < tiles);
  batch.batch = 0;
  CHECK_OK(jfa_plan_update(plan, &batch, NULL));
  CHECK_OK(jfa_plan_check(plan));
  CHECK_OK(jfa_plan_info(plan, &details));
  CHECK(details.forward_tiles == 0 && details.backward_tiles == 0);
  CHECK(details.forward_imbalance == 1 && details.backward_imbalance == 1);
}

/* A CPU plan keeps a copy of the offsets. */
static void offsets_may_change(problem* p, jfa_plan* plan) {
  int32_t q_offsets[BATCH + 1];
  int32_t kv_offsets[BATCH + 1];
  memcpy(q_offsets, Q_OFFSETS, sizeof(q_offsets));
  memcpy(kv_offsets, KV_OFFSETS, sizeof(kv_offsets));
  jfa_batch batch = p->batch;
  batch.q_offsets = q_offsets;
  batch.kv_offsets = kv_offsets;
  CHECK_OK(jfa_plan_update(plan, &batch, NULL));
  memset(q_offsets, 0xff, sizeof(q_offsets));
  memset(kv_offsets, 0xff, sizeof(kv_offsets));

  size_t forward = 0;
  CHECK_OK(jfa_plan_workspace_size(plan, &forward, NULL));
  void* workspace = problem_memory(forward);
  jfa_forward_args args = problem_forward_args(p, workspace, forward);
  CHECK_OK(jfa_forward(plan, &args, NULL));
  CHECK(!problem_is_unwritten(p->o[0]));
  CHECK(problem_guards_untouched(p));
  free(workspace);
}

/* An update within the maxima may name fewer rows than they do; no pointer is needed where there are no rows. */
static void no_rows(void) {
  const int32_t offsets[] = {0, 0, 0};
  problem p;
  jfa_plan* plan = NULL;
  problem_init(&p, 2, 2, 16, 2, 0, offsets, offsets, NULL);
  CHECK_OK(jfa_plan_create(&p.desc, &plan));
  jfa_batch batch = p.batch;
  batch.total_q = 0;
  batch.total_kv = 0;
  CHECK_OK(jfa_plan_update(plan, &batch, NULL));
  size_t forward = 0;
  size_t backward = 0;
  CHECK_OK(jfa_plan_workspace_size(plan, &forward, &backward));
  void* workspace = problem_memory(forward > backward ? forward : backward);
  jfa_forward_args forward_args = JFA_FORWARD_ARGS_INIT;
  forward_args.workspace = workspace;
  forward_args.workspace_size = forward;
  CHECK_OK(jfa_forward(plan, &forward_args, NULL));
  jfa_backward_args backward_args = JFA_BACKWARD_ARGS_INIT;
  backward_args.workspace = workspace;
  backward_args.workspace_size = backward;
  CHECK_OK(jfa_backward(plan, &backward_args, NULL));
  free(workspace);
  jfa_plan_destroy(plan);
  problem_free(&p);
}

int main(void) {
  problem p;
  problem_init(&p, 2, 1, 64, BATCH, 0, Q_OFFSETS, KV_OFFSETS, NULL);

  jfa_plan_destroy(NULL);
  jfa_plan* plan = NULL;
  jfa_plan* other = NULL;
  CHECK_OK(jfa_plan_create(&p.desc, &plan));
  CHECK_OK(jfa_plan_create(&p.desc, &other));
  CHECK(plan != NULL && other != NULL && plan != other);
  jfa_plan_destroy(other);

  size_t forward = 1;
  size_t backward = 1;
  CHECK_OK(jfa_plan_workspace_size(plan, &forward, NULL));
  CHECK_OK(jfa_plan_workspace_size(plan, NULL, &backward));
  CHECK_OK(jfa_plan_workspace_size(plan, NULL, NULL));
  info_of_batches(&p, plan);
  size_t later_forward = 2;
  size_t later_backward = 2;
  CHECK_OK(jfa_plan_workspace_size(plan, &later_forward, &later_backward));
  CHECK(later_forward == forward && later_backward == backward);

  offsets_may_change(&p, plan);
  jfa_plan_destroy(plan);
  problem_free(&p);
  no_rows();

  for (int i = 0; i < 20; i++) {
    problem_init(&p, 2, 1, 64, BATCH, 0, Q_OFFSETS, KV_OFFSETS, NULL);
    CHECK_OK(jfa_plan_create(&p.desc, &plan));
    CHECK_OK(jfa_plan_update(plan, &p.batch, NULL));
    jfa_plan_destroy(plan);
    problem_free(&p);
  }
  return check_summary();
}
