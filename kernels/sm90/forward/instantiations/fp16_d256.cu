#include "sm90/forward/kernel.cuh"

JFA_SM90_FORWARD(jfa_sm90_forward_fp16_d256, __half, 256, false)
JFA_SM90_FORWARD(jfa_sm90_forward_fp16_d256_mask, __half, 256, true)
