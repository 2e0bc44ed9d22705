/* Many threads at once: one plan shared by all, and plans of their own; each with its own outputs and errors. */
#include <jfa/jfa.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>

#include "support/check.h"
#include "support/problem.h"

enum { THREADS = 6, ROUNDS = 3, BATCH = 3 };

static const int32_t Q_OFFSETS[] = {0, 3, 70, 90};
static const int32_t KV_OFFSETS[] = {0, 40, 171, 180};

/* The work of one thread: its buffers, and whether all went well. */
typedef struct {
  int number;
  const jfa_plan* shared;
  problem p;
  void* workspace;
  size_t forward;
  size_t backward;
  int ok;
} job;

static void make(job* j, int number) {
  j->number = number;
  problem_init(&j->p, 4, 2, 32, BATCH, 0, Q_OFFSETS, KV_OFFSETS, NULL);
  j->p.desc.window_right = 0;
}

static int run_once(job* j, const jfa_plan* plan) {
  jfa_forward_args forward = problem_forward_args(&j->p, j->workspace, j->forward);
  jfa_backward_args backward = problem_backward_args(&j->p, j->workspace, j->backward);
  return jfa_forward(plan, &forward, NULL) == JFA_STATUS_SUCCESS &&
         jfa_backward(plan, &backward, NULL) == JFA_STATUS_SUCCESS;
}

/* Runs the shared plan, fails in its own way, and makes, uses and ends a plan of its own. */
static int work(void* argument) {
  job* j = argument;
  j->ok = 1;
  for (int round = 0; round < ROUNDS; round++) {
    char expected[32];
    snprintf(expected, sizeof(expected), "head_dim is %d,", 1001 + j->number);
    jfa_plan_desc bad = j->p.desc;
    jfa_plan* plan = NULL;
    bad.head_dim = 1001 + j->number;
    j->ok = j->ok && jfa_plan_create(&bad, &plan) == JFA_STATUS_INVALID_ARGUMENT;
    j->ok = j->ok && run_once(j, j->shared);
    j->ok = j->ok && jfa_plan_create(&j->p.desc, &plan) == JFA_STATUS_SUCCESS;
    j->ok = j->ok && jfa_plan_update(plan, &j->p.batch, NULL) == JFA_STATUS_SUCCESS;
    j->ok = j->ok && run_once(j, plan);
    jfa_plan_destroy(plan);
    j->ok = j->ok && strstr(jfa_last_error(), expected) != NULL;
  }
  return 0;
}

static int same(const float* a, const float* b, size_t count) { return memcmp(a, b, count * sizeof(float)) == 0; }

int main(void) {
  static job jobs[THREADS + 1];
  thrd_t threads[THREADS];
  jfa_plan* plan = NULL;
  size_t forward = 0;
  size_t backward = 0;
  for (int i = 0; i <= THREADS; i++) {
    make(&jobs[i], i);
  }
  CHECK_OK(jfa_plan_create(&jobs[0].p.desc, &plan));
  CHECK_OK(jfa_plan_update(plan, &jobs[0].p.batch, NULL));
  CHECK_OK(jfa_plan_workspace_size(plan, &forward, &backward));
  for (int i = 0; i <= THREADS; i++) {
    jobs[i].shared = plan;
    jobs[i].forward = forward;
    jobs[i].backward = backward;
    jobs[i].workspace = problem_memory(forward > backward ? forward : backward);
  }

  const job* alone = &jobs[THREADS];
  CHECK(run_once(&jobs[THREADS], plan));
  CHECK(!problem_is_unwritten(alone->p.o[0]) && !problem_is_unwritten(alone->p.grad_k[0]));
  for (int i = 0; i < THREADS; i++) {
    if (thrd_create(&threads[i], work, &jobs[i]) != thrd_success) {
      abort();
    }
  }
  for (int i = 0; i < THREADS; i++) {
    thrd_join(threads[i], NULL);
    const problem* p = &jobs[i].p;
    CHECK(jobs[i].ok);
    CHECK(problem_guards_untouched(p));
    CHECK(same(p->o, alone->p.o, problem_elements_o(p)));
    CHECK(same(p->lse, alone->p.lse, problem_elements_lse(p)));
    CHECK(same(p->grad_q, alone->p.grad_q, problem_elements_q(p)));
    CHECK(same(p->grad_k, alone->p.grad_k, problem_elements_kv(p)));
    CHECK(same(p->grad_v, alone->p.grad_v, problem_elements_kv(p)));
  }
  for (int i = 0; i <= THREADS; i++) {
    free(jobs[i].workspace);
    problem_free(&jobs[i].p);
  }
  jfa_plan_destroy(plan);
  return check_summary();
}
