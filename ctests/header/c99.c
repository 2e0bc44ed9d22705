/* The header alone, twice, in C99; CUDA's stream types, declared as CUDA does, pass without a cast. */
#include <jfa/jfa.h>
#include <jfa/jfa.h> /* NOLINT: the second inclusion must do nothing */

typedef struct CUstream_st* cudaStream_t;
typedef struct CUstream_st* CUstream;

uint32_t version_of_other_unit(void);

int main(void) {
  cudaStream_t runtime = NULL;
  CUstream driver = NULL;
  jfa_plan_desc desc = JFA_PLAN_DESC_INIT;
  jfa_batch batch = JFA_BATCH_INIT;
  jfa_forward_args forward = JFA_FORWARD_ARGS_INIT;
  jfa_backward_args backward = JFA_BACKWARD_ARGS_INIT;
  jfa_plan* plan = NULL;
  const int refused = jfa_plan_create(&desc, &plan) != JFA_STATUS_SUCCESS &&
                      jfa_plan_update(plan, &batch, runtime) != JFA_STATUS_SUCCESS &&
                      jfa_forward(plan, &forward, driver) != JFA_STATUS_SUCCESS &&
                      jfa_backward(plan, &backward, runtime) != JFA_STATUS_SUCCESS;
  return refused && version_of_other_unit() == JFA_VERSION ? 0 : 1;
}
