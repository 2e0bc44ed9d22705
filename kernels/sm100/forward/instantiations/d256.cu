#include "sm100/forward/kernel.cuh"

JFA_SM100_FORWARD(d256, 256, false)
JFA_SM100_FORWARD(d256_mask, 256, true)
