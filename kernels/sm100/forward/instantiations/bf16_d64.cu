#include "sm100/forward/kernel.cuh"

JFA_SM100_FORWARD(jfa_sm100_forward_bf16_d64, __nv_bfloat16, 64, false)
JFA_SM100_FORWARD(jfa_sm100_forward_bf16_d64_mask, __nv_bfloat16, 64, true)
