#include "sm90/forward/kernel.cuh"

JFA_SM90_FORWARD(d256, 256, false)
JFA_SM90_FORWARD(d256_mask, 256, true)
