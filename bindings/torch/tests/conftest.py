"""Devices: the CPU always, and the GPU where there is one that jfa has kernels for."""

import pytest
import torch

import jfa


def _cuda_missing():
    """Why the GPU is not tested, or None. A GPU whose kernels fail is tested: its tests then fail."""
    if not torch.cuda.is_available():
        return "PyTorch sees no GPU"
    if torch.cuda.get_device_capability() != (9, 0):
        return "jfa's kernels are for Hopper"
    q = torch.zeros(1, 1, 64, dtype=torch.bfloat16, device="cuda")
    try:
        jfa.attention(q, q, q, torch.tensor([0, 1], device="cuda"), max_seqlen_kv=1)
    except RuntimeError as error:
        if "built without its feature cuda" in str(error):
            return "this jfa was built without CUDA kernels"
    return None


CUDA_MISSING = _cuda_missing()
needs_cuda = pytest.mark.skipif(CUDA_MISSING is not None, reason=str(CUDA_MISSING))


def pytest_report_header():
    gpu = f"not tested, since {CUDA_MISSING}" if CUDA_MISSING else torch.cuda.get_device_name()
    return f"jfa {jfa.__version__}, PyTorch {torch.__version__}, GPU: {gpu}"


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=needs_cuda)])
def device(request):
    return request.param


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    torch.manual_seed(1)
