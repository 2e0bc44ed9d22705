#include "sm90/forward/kernel.cuh"

JFA_SM90_FORWARD(jfa_sm90_forward_bf16_d128, __nv_bfloat16, 128, false)
JFA_SM90_FORWARD(jfa_sm90_forward_bf16_d128_mask, __nv_bfloat16, 128, true)
JFA_SM90_FORWARD(jfa_sm90_forward_bf16_d128_m64, __nv_bfloat16, 128, false, 1)
JFA_SM90_FORWARD(jfa_sm90_forward_bf16_d128_pack, __nv_bfloat16, 128, false, 2, true)
JFA_SM90_FORWARD(jfa_sm90_forward_bf16_d128_pack_m64, __nv_bfloat16, 128, false, 1, true)
