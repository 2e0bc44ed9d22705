#include "sm90/backward/q_kernel.cuh"

JFA_SM90_BACKWARD_Q(jfa_sm90_backward_fp16_q64_d128, __half, 128, 1)
JFA_SM90_BACKWARD_Q(jfa_sm90_backward_fp16_q128_d128, __half, 128, 2)
