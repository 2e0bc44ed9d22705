#include "sm100/forward/kernel.cuh"

JFA_SM100_FORWARD(jfa_sm100_forward_bf16_d192, __nv_bfloat16, 192, false)
JFA_SM100_FORWARD(jfa_sm100_forward_bf16_d192_mask, __nv_bfloat16, 192, true)
