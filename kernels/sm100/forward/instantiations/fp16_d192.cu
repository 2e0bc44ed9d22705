#include "sm100/forward/kernel.cuh"

JFA_SM100_FORWARD(jfa_sm100_forward_fp16_d192, __half, 192, false)
JFA_SM100_FORWARD(jfa_sm100_forward_fp16_d192_mask, __half, 192, true)
