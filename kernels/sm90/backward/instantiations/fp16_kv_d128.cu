#include "sm90/backward/kv_kernel.cuh"

JFA_SM90_BACKWARD_KV(jfa_sm90_backward_fp16_kv_d128, __half, 128, false)
JFA_SM90_BACKWARD_KV(jfa_sm90_backward_fp16_kv_d128_mask, __half, 128, true)
