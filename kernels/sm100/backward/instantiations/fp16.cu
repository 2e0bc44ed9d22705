#include "sm100/backward/kernel.cuh"

JFA_SM100_BACKWARD(jfa_sm100_backward_fp16_d64, __half, 64, 1)
JFA_SM100_BACKWARD(jfa_sm100_backward_fp16_d128, __half, 128, 1)
JFA_SM100_BACKWARD(jfa_sm100_backward_fp16_d128_pair, __half, 128, 2)
JFA_SM100_BACKWARD(jfa_sm100_backward_fp16_d256, __half, 256, 1)
