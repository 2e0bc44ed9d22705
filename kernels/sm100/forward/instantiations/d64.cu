#include "sm100/forward/kernel.cuh"

JFA_SM100_FORWARD(d64, 64, false)
JFA_SM100_FORWARD(d64_mask, 64, true)
