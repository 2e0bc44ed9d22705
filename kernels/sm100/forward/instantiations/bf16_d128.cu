#include "sm100/forward/kernel.cuh"

JFA_SM100_FORWARD(jfa_sm100_forward_bf16_d128, __nv_bfloat16, 128, false)
JFA_SM100_FORWARD(jfa_sm100_forward_bf16_d128_mask, __nv_bfloat16, 128, true)
