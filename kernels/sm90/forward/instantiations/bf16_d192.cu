#include "sm90/forward/kernel.cuh"

JFA_SM90_FORWARD(jfa_sm90_forward_bf16_d192, __nv_bfloat16, 192, false)
JFA_SM90_FORWARD(jfa_sm90_forward_bf16_d192_mask, __nv_bfloat16, 192, true)
