/* The smallest program that uses jfa. */
#include <jfa/jfa.h>
#include <stdio.h>

int main(void) {
  jfa_plan_desc desc = JFA_PLAN_DESC_INIT;
  jfa_plan* plan = NULL;
  desc.dtype = JFA_DTYPE_FP32;
  desc.heads_q = desc.heads_kv = 1;
  desc.head_dim = 8;
  if (jfa_plan_create(&desc, &plan) != JFA_STATUS_SUCCESS) {
    fprintf(stderr, "%s\n", jfa_last_error());
    return 1;
  }
  jfa_plan_destroy(plan);
  printf("jfa %u\n", (unsigned)jfa_version());
  return jfa_version() == JFA_VERSION ? 0 : 1;
}
