/* A small jagged batch in fp32 with every buffer that the forward and the backward need. */
#ifndef JFA_TEST_PROBLEM_H
#define JFA_TEST_PROBLEM_H

#include <jfa/jfa.h>
#include <stddef.h>
#include <stdint.h>

/* What outputs hold before a call: an unusual NaN, told by its bits. */
#define PROBLEM_UNWRITTEN UINT32_C(0x7fc0dead)

/* Shapes are those of jfa_forward_args and jfa_backward_args. K, V, packed Q and dO are NaN in the rows that lie
   outside every sequence, and a few such rows follow the last sequence. Every buffer is followed by a guard. Outputs
   and guards start as PROBLEM_UNWRITTEN. */
typedef struct {
  jfa_plan_desc desc;
  jfa_batch batch;
  int64_t rows_q;
  int64_t rows_o;
  int64_t rows_kv;
  float* q;
  float* k;
  float* v;
  float* grad_o;
  float* o;
  float* lse;
  float* grad_q;
  float* grad_k;
  float* grad_v;
} problem;

/* The rows of one sequence. */
typedef struct {
  int64_t begin_q;
  int64_t begin_o;
  int64_t begin_kv;
  int64_t len_q;
  int64_t len_kv;
} sequence;

/* Makes a problem whose maxima are those of the offsets. `q_offsets` is NULL for a dense Q of `seqlen_q` rows that all
   sequences share; `kv_lengths` is NULL for whole slots. The arrays stay the caller's and must outlive the problem. */
void problem_init(problem* p, int32_t heads_q, int32_t heads_kv, int32_t head_dim, int64_t batch, int64_t seqlen_q,
                  const int32_t* q_offsets, const int32_t* kv_offsets, const int32_t* kv_lengths);
void problem_free(problem* p);

/* The rows of sequence `b`. */
sequence problem_sequence(const problem* p, int64_t b);

/* The arguments of both calls: contiguous tensors, the given workspace. */
jfa_forward_args problem_forward_args(const problem* p, void* workspace, size_t workspace_size);
jfa_backward_args problem_backward_args(const problem* p, void* workspace, size_t workspace_size);

/* Elements of Q, of K and of O, and of the LSE. */
size_t problem_elements_q(const problem* p);
size_t problem_elements_kv(const problem* p);
size_t problem_elements_o(const problem* p);
size_t problem_elements_lse(const problem* p);

/* Whether nothing was written to any output. */
int problem_outputs_untouched(const problem* p);
/* Whether the guards behind all buffers are as they were. */
int problem_guards_untouched(const problem* p);
/* Whether no call has written this element. */
int problem_is_unwritten(float value);

/* 256-byte aligned memory of at least one byte, ended with free(). */
void* problem_memory(size_t size);

#endif
