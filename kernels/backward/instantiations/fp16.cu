#include "backward/finish.cuh"

JFA_BACKWARD_SIDES(__half, fp16, 64)
JFA_BACKWARD_SIDES(__half, fp16, 128)
JFA_BACKWARD_SIDES(__half, fp16, 256)
