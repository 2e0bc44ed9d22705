#include "sm90/forward/kernel.cuh"

JFA_SM90_FORWARD(jfa_sm90_forward_fp16_d64, __half, 64, false)
JFA_SM90_FORWARD(jfa_sm90_forward_fp16_d64_mask, __half, 64, true)
