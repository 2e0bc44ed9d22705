#include "sm90/forward/kernel.cuh"

JFA_SM90_FORWARD(d64, 64, false)
JFA_SM90_FORWARD(d64_mask, 64, true)
JFA_SM90_FORWARD(d64_m64, 64, false, 1)
JFA_SM90_FORWARD(d64_pack, 64, false, 2, true)
JFA_SM90_FORWARD(d64_pack_m64, 64, false, 1, true)
