#include "sm90/forward/kernel.cuh"

JFA_SM90_FORWARD(jfa_sm90_forward_fp16_d192, __half, 192, false)
JFA_SM90_FORWARD(jfa_sm90_forward_fp16_d192_mask, __half, 192, true)
