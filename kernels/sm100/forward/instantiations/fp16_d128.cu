#include "sm100/forward/kernel.cuh"

JFA_SM100_FORWARD(jfa_sm100_forward_fp16_d128, __half, 128, false)
JFA_SM100_FORWARD(jfa_sm100_forward_fp16_d128_mask, __half, 128, true)
