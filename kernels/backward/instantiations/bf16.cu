#include "backward/finish.cuh"

JFA_BACKWARD_SIDES(__nv_bfloat16, bf16, 64)
JFA_BACKWARD_SIDES(__nv_bfloat16, bf16, 128)
JFA_BACKWARD_SIDES(__nv_bfloat16, bf16, 256)
