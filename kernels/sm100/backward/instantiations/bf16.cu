#include "sm100/backward/kernel.cuh"

JFA_SM100_BACKWARD(jfa_sm100_backward_bf16_d64, __nv_bfloat16, 64, 1)
JFA_SM100_BACKWARD(jfa_sm100_backward_bf16_d128, __nv_bfloat16, 128, 1)
JFA_SM100_BACKWARD(jfa_sm100_backward_bf16_d128_pair, __nv_bfloat16, 128, 2)
JFA_SM100_BACKWARD(jfa_sm100_backward_bf16_d256, __nv_bfloat16, 256, 1)
