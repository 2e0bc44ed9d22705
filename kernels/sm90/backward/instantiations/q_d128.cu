#include "sm90/backward/q_kernel.cuh"

JFA_SM90_BACKWARD_Q(q64_d128, 128, 1)
JFA_SM90_BACKWARD_Q(q128_d128, 128, 2)
