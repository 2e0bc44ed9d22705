#include "sm100/forward/kernel.cuh"

JFA_SM100_FORWARD(d128, 128, false)
JFA_SM100_FORWARD(d128_mask, 128, true)
