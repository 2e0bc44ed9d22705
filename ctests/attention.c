/* jfa_forward() and jfa_backward() against the naive reference, and what they leave alone. */
#include <jfa/jfa.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"
#include "support/problem.h"
#include "support/reference.h"

/* Relative Frobenius error that fp32 arithmetic with an accurate exp stays far below. */
static const double TOLERANCE = 1e-5;

/* Compares the used rows with the reference, and checks that no other was written. */
static void compare(const char* name, const char* tensor, const float* actual, const double* expected,
                    const unsigned char* used, int64_t rows, size_t width) {
  double error = 0;
  double norm = 0;
  int untouched = 1;
  for (int64_t r = 0; r < rows; r++) {
    for (size_t i = (size_t)r * width; i < (size_t)(r + 1) * width; i++) {
      if (used[r]) {
        error += (actual[i] - expected[i]) * (actual[i] - expected[i]);
        norm += expected[i] * expected[i];
      } else {
        untouched = untouched && problem_is_unwritten(actual[i]);
      }
    }
  }
  /* Written so that a NaN fails. Where all is 0, it is exactly 0. */
  const int close = sqrt(error) <= TOLERANCE * sqrt(norm);
  if (!close || !untouched) {
    fprintf(stderr, "%s, %s: relative error %g%s\n", name, tensor, sqrt(error / norm),
            untouched ? "" : ", and rows outside every sequence were written");
  }
  CHECK(close);
  CHECK(untouched);
}

static void compare_lse(const char* name, const problem* p, const reference* r) {
  const int broadcast = (p->desc.flags & JFA_BROADCAST_Q) != 0;
  int close = 1;
  for (size_t i = 0; i < problem_elements_lse(p); i++) {
    const size_t row = broadcast ? 0 : i % (size_t)p->rows_o;
    if (!broadcast && !r->used_o[row]) {
      close = close && problem_is_unwritten(p->lse[i]);
    } else if (isinf(r->lse[i])) {
      close = close && p->lse[i] == -INFINITY;
    } else {
      close = close && fabs(p->lse[i] - r->lse[i]) <= 1e-5 * fmax(1, fabs(r->lse[i]));
    }
  }
  if (!close) {
    fprintf(stderr, "%s: LSE differs\n", name);
  }
  CHECK(close);
}

static void compare_all(const char* name, const problem* p) {
  const size_t width_q = (size_t)(p->desc.heads_q * p->desc.head_dim);
  const size_t width_kv = (size_t)(p->desc.heads_kv * p->desc.head_dim);
  reference r;
  reference_init(&r, p);
  compare(name, "O", p->o, r.o, r.used_o, p->rows_o, width_q);
  compare_lse(name, p, &r);
  compare(name, "dQ", p->grad_q, r.grad_q, r.used_q, p->rows_q, width_q);
  compare(name, "dK", p->grad_k, r.grad_k, r.used_kv, p->rows_kv, width_kv);
  compare(name, "dV", p->grad_v, r.grad_v, r.used_kv, p->rows_kv, width_kv);
  CHECK(problem_guards_untouched(p));
  reference_free(&r);
}

/* Once more, onto gradients that hold those of the first call: each that is accumulated doubles, exactly. */
static void accumulate(const char* name, const problem* p, const jfa_plan* plan, jfa_backward_args args) {
  const uint32_t bits[] = {JFA_ACCUMULATE_GRAD_Q, JFA_ACCUMULATE_GRAD_K, JFA_ACCUMULATE_GRAD_V};
  const size_t sizes[] = {problem_elements_q(p), problem_elements_kv(p), problem_elements_kv(p)};
  float* const grads[] = {p->grad_q, p->grad_k, p->grad_v};
  for (args.accumulate = 1; args.accumulate < 8; args.accumulate++) {
    float* before[3];
    for (int i = 0; i < 3; i++) {
      before[i] = problem_memory(sizes[i] * sizeof(float));
      memcpy(before[i], grads[i], sizes[i] * sizeof(float));
    }
    CHECK_OK(jfa_backward(plan, &args, NULL));
    for (int i = 0; i < 3; i++) {
      const float factor = (args.accumulate & bits[i]) != 0 ? 2 : 1;
      int right = 1;
      for (size_t at = 0; at < sizes[i]; at++) {
        right = right && (problem_is_unwritten(before[i][at]) ? problem_is_unwritten(grads[i][at])
                                                              : grads[i][at] == factor * before[i][at]);
      }
      if (!right) {
        fprintf(stderr, "%s: accumulate %u, gradient %d\n", name, args.accumulate, i);
      }
      CHECK(right);
      memcpy(grads[i], before[i], sizes[i] * sizeof(float));
      free(before[i]);
    }
  }
}

/* Forward and backward of one problem. `batch` is the problem's own, or the same offsets in another type. */
static void run(const char* name, problem* p, const jfa_batch* batch) {
  jfa_plan* plan = NULL;
  size_t forward = 0;
  size_t backward = 0;
  CHECK_OK(jfa_plan_create(&p->desc, &plan));
  CHECK_OK(jfa_plan_update(plan, batch, NULL));
  CHECK_OK(jfa_plan_workspace_size(plan, &forward, &backward));
  void* workspace = problem_memory(forward > backward ? forward : backward);

  jfa_forward_args forward_args = problem_forward_args(p, workspace, forward);
  CHECK_OK(jfa_forward(plan, &forward_args, NULL));
  jfa_backward_args backward_args = problem_backward_args(p, workspace, backward);
  CHECK_OK(jfa_backward(plan, &backward_args, NULL));
  compare_all(name, p);

  /* Again, into the same buffers: the same bits, and a workspace may hold anything. */
  const size_t bytes = problem_elements_o(p) * sizeof(float);
  const size_t bytes_kv = problem_elements_kv(p) * sizeof(float);
  float* o = problem_memory(bytes);
  float* grad_k = problem_memory(bytes_kv);
  memcpy(o, p->o, bytes);
  memcpy(grad_k, p->grad_k, bytes_kv);
  memset(workspace, 0xff, forward > backward ? forward : backward);
  CHECK_OK(jfa_forward(plan, &forward_args, NULL));
  memset(workspace, 0xff, forward > backward ? forward : backward);
  CHECK_OK(jfa_backward(plan, &backward_args, NULL));
  CHECK(memcmp(o, p->o, bytes) == 0);
  CHECK(memcmp(grad_k, p->grad_k, bytes_kv) == 0);
  accumulate(name, p, plan, backward_args);

  free(o);
  free(grad_k);
  free(workspace);
  jfa_plan_destroy(plan);
}

/* Lengths 0, 5, 70, 1, 0, 130 on the query side; the key side has empty sequences elsewhere, one of 150 keys, and rows
   that belong to none before the first. */
static const int32_t Q_OFFSETS[] = {2, 2, 7, 77, 78, 78, 208};
static const int32_t KV_OFFSETS[] = {3, 7, 7, 157, 160, 164, 165};
/* Keys used of each slot: some of them, none, all. */
static const int32_t KV_LENGTHS[] = {4, 0, 129, 0, 2, 1};
enum { BATCH = 6 };

static void packed(const char* name, int32_t heads_q, int32_t heads_kv, int32_t head_dim, int32_t left, int32_t right,
                   int32_t alignment, const int32_t* kv_lengths) {
  problem p;
  problem_init(&p, heads_q, heads_kv, head_dim, BATCH, 0, Q_OFFSETS, KV_OFFSETS, kv_lengths);
  p.desc.window_left = left;
  p.desc.window_right = right;
  p.desc.alignment = alignment;
  run(name, &p, &p.batch);
  problem_free(&p);
}

static void broadcast(const char* name, int32_t heads_q, int32_t heads_kv, int32_t head_dim, int64_t seqlen_q,
                      const int32_t* kv_lengths) {
  problem p;
  problem_init(&p, heads_q, heads_kv, head_dim, BATCH, seqlen_q, NULL, KV_OFFSETS, kv_lengths);
  p.desc.scale = 0.25f;
  run(name, &p, &p.batch);
  problem_free(&p);
}

static void wide_offsets(void) {
  problem p;
  int64_t q_offsets[BATCH + 1];
  int64_t kv_offsets[BATCH + 1];
  for (int b = 0; b <= BATCH; b++) {
    q_offsets[b] = Q_OFFSETS[b];
    kv_offsets[b] = KV_OFFSETS[b];
  }
  problem_init(&p, 2, 1, 16, BATCH, 0, Q_OFFSETS, KV_OFFSETS, NULL);
  p.desc.index_type = JFA_INDEX_TYPE_INT64;
  jfa_batch batch = p.batch;
  batch.q_offsets = q_offsets;
  batch.kv_offsets = kv_offsets;
  run("64-bit offsets", &p, &batch);
  problem_free(&p);
}

/* Q, K and V as slices of one [rows, 3, heads, head_dim] buffer, as a fused projection leaves them. */
static void fused_projection(void) {
  enum { HEADS = 2, DIM = 32, WIDTH = HEADS * DIM };
  problem p;
  problem_init(&p, HEADS, HEADS, DIM, BATCH, 0, KV_OFFSETS, KV_OFFSETS, NULL);
  float* qkv = problem_memory((size_t)p.rows_q * 3 * WIDTH * sizeof(float));
  for (int64_t row = 0; row < p.rows_q; row++) {
    const float* parts[3] = {p.q, p.k, p.v};
    for (int part = 0; part < 3; part++) {
      memcpy(qkv + (row * 3 + part) * WIDTH, parts[part] + row * WIDTH, WIDTH * sizeof(float));
    }
  }
  jfa_plan* plan = NULL;
  size_t forward = 0;
  size_t backward = 0;
  CHECK_OK(jfa_plan_create(&p.desc, &plan));
  CHECK_OK(jfa_plan_update(plan, &p.batch, NULL));
  CHECK_OK(jfa_plan_workspace_size(plan, &forward, &backward));
  void* workspace = problem_memory(forward > backward ? forward : backward);
  const jfa_const_tensor parts[3] = {
      {qkv, 3 * WIDTH, DIM}, {qkv + WIDTH, 3 * WIDTH, 0}, {qkv + 2 * WIDTH, 3 * WIDTH, 0}};
  jfa_forward_args forward_args = problem_forward_args(&p, workspace, forward);
  jfa_backward_args backward_args = problem_backward_args(&p, workspace, backward);
  forward_args.q = backward_args.q = parts[0];
  forward_args.k = backward_args.k = parts[1];
  forward_args.v = backward_args.v = parts[2];
  CHECK_OK(jfa_forward(plan, &forward_args, NULL));
  CHECK_OK(jfa_backward(plan, &backward_args, NULL));
  compare_all("fused projection", &p);
  free(workspace);
  free(qkv);
  jfa_plan_destroy(plan);
  problem_free(&p);
}

int main(void) {
  packed("packed", 2, 2, 64, -1, -1, JFA_ALIGNMENT_TOP_LEFT, NULL);
  packed("packed, lengths", 2, 2, 64, -1, -1, JFA_ALIGNMENT_TOP_LEFT, KV_LENGTHS);
  packed("causal, top left", 4, 2, 32, -1, 0, JFA_ALIGNMENT_TOP_LEFT, NULL);
  packed("causal, bottom right", 4, 2, 32, -1, 0, JFA_ALIGNMENT_BOTTOM_RIGHT, KV_LENGTHS);
  packed("window, one key head", 3, 1, 8, 5, 2, JFA_ALIGNMENT_BOTTOM_RIGHT, NULL);
  packed("window left of the diagonal", 1, 1, 256, 3, 0, JFA_ALIGNMENT_TOP_LEFT, NULL);
  broadcast("broadcast", 2, 2, 64, 64, NULL);
  broadcast("broadcast, lengths, grouped", 4, 2, 24, 65, KV_LENGTHS);
  broadcast("broadcast, one query", 1, 1, 128, 1, NULL);
  wide_offsets();
  fused_projection();
  return check_summary();
}
