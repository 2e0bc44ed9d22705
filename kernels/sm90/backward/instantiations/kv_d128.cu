#include "sm90/backward/kv_kernel.cuh"

JFA_SM90_BACKWARD_KV(kv_d128, 128, false)
JFA_SM90_BACKWARD_KV(kv_d128_mask, 128, true)
