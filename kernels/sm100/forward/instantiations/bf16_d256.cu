#include "sm100/forward/kernel.cuh"

JFA_SM100_FORWARD(jfa_sm100_forward_bf16_d256, __nv_bfloat16, 256, false)
JFA_SM100_FORWARD(jfa_sm100_forward_bf16_d256_mask, __nv_bfloat16, 256, true)
