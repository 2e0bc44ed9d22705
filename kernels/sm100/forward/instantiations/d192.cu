#include "sm100/forward/kernel.cuh"

JFA_SM100_FORWARD(d192, 192, false)
JFA_SM100_FORWARD(d192_mask, 192, true)
