#include "sm100/forward/kernel.cuh"

JFA_SM100_FORWARD(jfa_sm100_forward_fp16_d64, __half, 64, false)
JFA_SM100_FORWARD(jfa_sm100_forward_fp16_d64_mask, __half, 64, true)
