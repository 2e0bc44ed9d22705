#include "sm90/backward/kv_kernel.cuh"

JFA_SM90_BACKWARD_KV(jfa_sm90_backward_bf16_kv_d256, __nv_bfloat16, 256, false)
JFA_SM90_BACKWARD_KV(jfa_sm90_backward_bf16_kv_d256_mask, __nv_bfloat16, 256, true)
