#include "sm90/backward/kv_kernel.cuh"

JFA_SM90_BACKWARD_KV(kv_d256, 256, false)
JFA_SM90_BACKWARD_KV(kv_d256_mask, 256, true)
