#include "sm90/backward/q_kernel.cuh"

JFA_SM90_BACKWARD_Q(jfa_sm90_backward_bf16_q64_d64, __nv_bfloat16, 64, 1)
JFA_SM90_BACKWARD_Q(jfa_sm90_backward_bf16_q128_d64, __nv_bfloat16, 64, 2)
