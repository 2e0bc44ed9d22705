#include "sm90/forward/kernel.cuh"

JFA_SM90_FORWARD(d192, 192, false)
JFA_SM90_FORWARD(d192_mask, 192, true)
