/* Attention as its formula says it, in double: no tiles, no online softmax. */
#ifndef JFA_TEST_REFERENCE_H
#define JFA_TEST_REFERENCE_H

#include "problem.h"

/* Results of the shapes of the problem's buffers. Rows outside every sequence hold 0 and are not marked as used. */
typedef struct {
  double* o;
  double* lse;
  double* grad_q;
  double* grad_k;
  double* grad_v;
  unsigned char* used_q;
  unsigned char* used_o;
  unsigned char* used_kv;
} reference;

void reference_init(reference* r, const problem* p);
void reference_free(reference* r);

#endif
