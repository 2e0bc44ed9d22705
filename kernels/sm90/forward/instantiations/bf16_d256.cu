#include "sm90/forward/kernel.cuh"

JFA_SM90_FORWARD(jfa_sm90_forward_bf16_d256, __nv_bfloat16, 256, false)
JFA_SM90_FORWARD(jfa_sm90_forward_bf16_d256_mask, __nv_bfloat16, 256, true)
