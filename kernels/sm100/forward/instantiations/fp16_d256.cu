#include "sm100/forward/kernel.cuh"

JFA_SM100_FORWARD(jfa_sm100_forward_fp16_d256, __half, 256, false)
JFA_SM100_FORWARD(jfa_sm100_forward_fp16_d256_mask, __half, 256, true)
