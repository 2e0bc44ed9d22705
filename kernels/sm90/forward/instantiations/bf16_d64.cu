#include "sm90/forward/kernel.cuh"

JFA_SM90_FORWARD(jfa_sm90_forward_bf16_d64, __nv_bfloat16, 64, false)
JFA_SM90_FORWARD(jfa_sm90_forward_bf16_d64_mask, __nv_bfloat16, 64, true)
