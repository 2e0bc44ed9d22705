#include "sm90/forward/kernel.cuh"

JFA_SM90_FORWARD(jfa_sm90_forward_fp16_d128, __half, 128, false)
JFA_SM90_FORWARD(jfa_sm90_forward_fp16_d128_mask, __half, 128, true)
