#include "sm90/backward/kv_kernel.cuh"

JFA_SM90_BACKWARD_KV(jfa_sm90_backward_bf16_kv_d128, __nv_bfloat16, 128, false)
JFA_SM90_BACKWARD_KV(jfa_sm90_backward_bf16_kv_d128_mask, __nv_bfloat16, 128, true)
