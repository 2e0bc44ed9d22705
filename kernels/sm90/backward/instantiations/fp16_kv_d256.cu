#include "sm90/backward/kv_kernel.cuh"

JFA_SM90_BACKWARD_KV(jfa_sm90_backward_fp16_kv_d256, __half, 256, false)
JFA_SM90_BACKWARD_KV(jfa_sm90_backward_fp16_kv_d256_mask, __half, 256, true)
