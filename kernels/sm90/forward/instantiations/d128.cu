#include "sm90/forward/kernel.cuh"

JFA_SM90_FORWARD(d128, 128, false)
JFA_SM90_FORWARD(d128_mask, 128, true)
JFA_SM90_FORWARD(d128_m64, 128, false, 1)
JFA_SM90_FORWARD(d128_pack, 128, false, 2, true)
JFA_SM90_FORWARD(d128_pack_m64, 128, false, 1, true)
