#include "sm90/forward/kernel.cuh"

JFA_SM90_FORWARD(jfa_sm90_forward_fp16_d64, __half, 64, false)
JFA_SM90_FORWARD(jfa_sm90_forward_fp16_d64_mask, __half, 64, true)
JFA_SM90_FORWARD(jfa_sm90_forward_fp16_d64_m64, __half, 64, false, 1)
JFA_SM90_FORWARD(jfa_sm90_forward_fp16_d64_pack, __half, 64, false, 2, true)
JFA_SM90_FORWARD(jfa_sm90_forward_fp16_d64_pack_m64, __half, 64, false, 1, true)
