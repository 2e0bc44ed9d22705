#include "sm90/backward/kv_kernel.cuh"

JFA_SM90_BACKWARD_KV(kv_d64, 64, false)
JFA_SM90_BACKWARD_KV(kv_d64_mask, 64, true)
