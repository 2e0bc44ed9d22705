#include "sm90/backward/q_kernel.cuh"

JFA_SM90_BACKWARD_Q(jfa_sm90_backward_fp16_q64_d64, __half, 64, 1)
JFA_SM90_BACKWARD_Q(jfa_sm90_backward_fp16_q128_d64, __half, 64, 2)
