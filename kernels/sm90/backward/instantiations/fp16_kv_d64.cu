#include "sm90/backward/kv_kernel.cuh"

JFA_SM90_BACKWARD_KV(jfa_sm90_backward_fp16_kv_d64, __half, 64, false)
JFA_SM90_BACKWARD_KV(jfa_sm90_backward_fp16_kv_d64_mask, __half, 64, true)
