#include "reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void* zeroed(size_t count, size_t size) {
  void* data = calloc(count + 1, size);
  if (data == NULL) {
    fprintf(stderr, "out of memory\n");
    abort();
  }
  return data;
}

static int visible(const jfa_plan_desc* d, const sequence* s, int64_t i, int64_t j) {
  const int64_t diagonal = i + (d->alignment == JFA_ALIGNMENT_BOTTOM_RIGHT ? s->len_kv - s->len_q : 0);
  return (d->window_left < 0 || j >= diagonal - d->window_left) &&
         (d->window_right < 0 || j <= diagonal + d->window_right);
}

static double dot(const float* a, const float* b, int32_t n) {
  double sum = 0;
  for (int32_t c = 0; c < n; c++) {
    sum += (double)a[c] * b[c];
  }
  return sum;
}

/* One query row of one head: its output and LSE, and what it adds to the gradients. `p` has room for every key. */
static void row(reference* r, const problem* x, const sequence* s, int64_t b, int32_t h, int64_t i, double* p) {
  const jfa_plan_desc* d = &x->desc;
  const int32_t dim = d->head_dim;
  const int32_t h_kv = h / (d->heads_q / d->heads_kv);
  const double scale = d->scale == 0 ? 1 / sqrt(dim) : d->scale;
  const size_t at_q = (size_t)((s->begin_q + i) * d->heads_q + h) * (size_t)dim;
  const size_t at_o = (size_t)((s->begin_o + i) * d->heads_q + h) * (size_t)dim;
  const size_t at_lse = (d->flags & JFA_BROADCAST_Q) != 0 ? (size_t)((b * d->heads_q + h) * d->max_seqlen_q + i)
                                                          : (size_t)(h * x->rows_o + s->begin_o + i);
  const size_t step = (size_t)(d->heads_kv * dim);
  const size_t at_kv = (size_t)(s->begin_kv * d->heads_kv + h_kv) * (size_t)dim;

  double max = -INFINITY;
  for (int64_t j = 0; j < s->len_kv; j++) {
    p[j] = visible(d, s, i, j) ? scale * dot(x->q + at_q, x->k + at_kv + (size_t)j * step, dim) : -INFINITY;
    max = fmax(max, p[j]);
  }
  if (max == -INFINITY) {
    r->lse[at_lse] = -INFINITY;
    return;
  }
  double sum = 0;
  for (int64_t j = 0; j < s->len_kv; j++) {
    sum += exp(p[j] - max);
  }
  r->lse[at_lse] = max + log(sum);

  double delta = 0;
  for (int64_t j = 0; j < s->len_kv; j++) {
    p[j] = exp(p[j] - r->lse[at_lse]);
    for (int32_t c = 0; c < dim; c++) {
      r->o[at_o + (size_t)c] += p[j] * x->v[at_kv + (size_t)j * step + (size_t)c];
    }
  }
  for (int32_t c = 0; c < dim; c++) {
    delta += r->o[at_o + (size_t)c] * x->grad_o[at_o + (size_t)c];
  }
  for (int64_t j = 0; j < s->len_kv; j++) {
    const size_t at = at_kv + (size_t)j * step;
    const double grad_s = p[j] * (dot(x->grad_o + at_o, x->v + at, dim) - delta) * scale;
    for (int32_t c = 0; c < dim; c++) {
      r->grad_q[at_q + (size_t)c] += grad_s * x->k[at + (size_t)c];
      r->grad_k[at + (size_t)c] += grad_s * x->q[at_q + (size_t)c];
      r->grad_v[at + (size_t)c] += p[j] * x->grad_o[at_o + (size_t)c];
    }
  }
}

void reference_init(reference* r, const problem* p) {
  r->o = zeroed(problem_elements_o(p), sizeof(double));
  r->lse = zeroed(problem_elements_lse(p), sizeof(double));
  r->grad_q = zeroed(problem_elements_q(p), sizeof(double));
  r->grad_k = zeroed(problem_elements_kv(p), sizeof(double));
  r->grad_v = zeroed(problem_elements_kv(p), sizeof(double));
  r->used_q = zeroed((size_t)p->rows_q, 1);
  r->used_o = zeroed((size_t)p->rows_o, 1);
  r->used_kv = zeroed((size_t)p->rows_kv, 1);
  if ((p->desc.flags & JFA_BROADCAST_Q) != 0) {
    /* The dense Q belongs to no sequence: its gradient is a sum over the batch, also over none. */
    memset(r->used_q, 1, (size_t)p->rows_q);
  }

  double* scores = zeroed((size_t)p->desc.max_seqlen_kv, sizeof(double));
  for (int64_t b = 0; b < p->batch.batch; b++) {
    const sequence s = problem_sequence(p, b);
    memset(r->used_q + s.begin_q, 1, (size_t)s.len_q);
    memset(r->used_o + s.begin_o, 1, (size_t)s.len_q);
    memset(r->used_kv + s.begin_kv, 1, (size_t)s.len_kv);
    for (int32_t h = 0; h < p->desc.heads_q; h++) {
      for (int64_t i = 0; i < s.len_q; i++) {
        row(r, p, &s, b, h, i, scores);
      }
    }
  }
  free(scores);
}

void reference_free(reference* r) {
  free(r->o);
  free(r->lse);
  free(r->grad_q);
  free(r->grad_k);
  free(r->grad_v);
  free(r->used_q);
  free(r->used_o);
  free(r->used_kv);
}
