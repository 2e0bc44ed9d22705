"""Wrong arguments: an exception that names the argument and the rule, before anything is launched."""

import pytest
import torch
from conftest import needs_cuda
from reference import Batch

import jfa

PLAIN = dict(max_seqlen_kv=8)


def replaced(**changes):
    """Arguments of a good call with some of them changed."""
    return lambda good: good | {name: change(good[name]) for name, change in changes.items()}


def given(**values):
    return lambda good: good | values


def not_contiguous(t):
    return t.transpose(1, 2).contiguous().transpose(1, 2)


def offsets(*values, dtype=torch.int32):
    return torch.tensor(values, dtype=dtype)


# Name: change of a good call, exception, text.
CASES = {
    "q no tensor": (given(q=[1.0]), TypeError, "q: must be a tensor, but is list"),
    "q two dimensions": (replaced(q=lambda t: t[0]), ValueError, r"q: must have 3 dimensions .*, but has 2"),
    "k four dimensions": (replaced(k=lambda t: t[None]), ValueError, "k: must have 3 dimensions .*, but has 4"),
    "q float64": (
        replaced(q=torch.Tensor.double, k=torch.Tensor.double, v=torch.Tensor.double),
        ValueError,
        "q: must be bfloat16, float16 or, on the CPU, float32, but is float64",
    ),
    "k of another type": (replaced(k=torch.Tensor.half), ValueError, "k: must be of q's type .*, but is float16"),
    "v of another type": (replaced(v=torch.Tensor.half), ValueError, "v: must be of q's type .*, but is float16"),
    "q last dimension": (replaced(q=not_contiguous), ValueError, "q: the last dimension must be contiguous"),
    "k last dimension": (replaced(k=not_contiguous), ValueError, "k: the last dimension must be contiguous"),
    "v last dimension": (replaced(v=not_contiguous), ValueError, "v: the last dimension must be contiguous"),
    "v shorter": (replaced(v=lambda t: t[:-1]), ValueError, "v: must have the shape of k"),
    "head_dim": (
        replaced(k=lambda t: t[..., :32].contiguous(), v=lambda t: t[..., :32].contiguous()),
        ValueError,
        "k: must have q's head_dim 64, but has 32",
    ),
    "head_dim 60": (
        replaced(**{name: (lambda t: t[..., :60].contiguous()) for name in "qkv"}),
        ValueError,
        "head_dim .*multiple of 8",
    ),
    "heads": (replaced(q=lambda t: t[:, :1]), ValueError, "q: its 1 heads must be a multiple of the 2 heads of k"),
    "kv_offsets missing": (given(kv_offsets=None), TypeError, "kv_offsets: must be a tensor, but is NoneType"),
    "kv_offsets list": (given(kv_offsets=[0, 3, 8]), TypeError, "kv_offsets: must be a tensor, but is list"),
    "kv_offsets float": (replaced(kv_offsets=torch.Tensor.float), ValueError, "kv_offsets: must be int32 or int64"),
    "kv_offsets int16": (replaced(kv_offsets=torch.Tensor.short), ValueError, "kv_offsets: must be int32 or int64"),
    "kv_offsets with gradient": (
        replaced(kv_offsets=lambda t: t.float().requires_grad_()),
        ValueError,
        "kv_offsets: must not require a gradient",
    ),
    "kv_offsets matrix": (
        replaced(kv_offsets=lambda t: t[None]),
        ValueError,
        "kv_offsets: must be a contiguous vector",
    ),
    "kv_offsets strided": (
        replaced(kv_offsets=lambda t: torch.stack([t, t], 1)[:, 0]),
        ValueError,
        "kv_offsets: must be a contiguous vector",
    ),
    "kv_offsets empty": (replaced(kv_offsets=lambda t: t[:0]), ValueError, "kv_offsets: must have batch . 1 elements"),
    "q_offsets length": (
        given(q_offsets=offsets(0, 4), max_seqlen_q=4),
        ValueError,
        "q_offsets: must have 3 elements to fit kv_offsets, but has 2",
    ),
    "q_offsets type": (
        given(q_offsets=offsets(0, 2, 4, dtype=torch.int64), max_seqlen_q=4),
        ValueError,
        "q_offsets: must be of kv_offsets' type int32, but is int64",
    ),
    "kv_lengths length": (
        given(kv_lengths=offsets(1, 2, 3)),
        ValueError,
        "kv_lengths: must have 2 elements to fit kv_offsets, but has 3",
    ),
    "max_seqlen_kv missing": (given(max_seqlen_kv=None), TypeError, "max_seqlen_kv: needed: an upper bound"),
    "max_seqlen_kv tensor": (given(max_seqlen_kv=offsets(8)), TypeError, "max_seqlen_kv: must be an integer"),
    "max_seqlen_kv negative": (given(max_seqlen_kv=-1), ValueError, "max_seqlen_kv .*-1"),
    "max_seqlen_q missing": (given(q_offsets=offsets(0, 2, 4)), TypeError, "max_seqlen_q: needed: with q_offsets"),
    "window": (given(window=(1, 2, 3)), ValueError, r"window: must be \(left, right\)"),
    "window negative": (given(window=(-2, 0)), ValueError, "window: must be 0 or more, or -1"),
    "window huge": (given(window=(2**40, 0)), ValueError, "window_left: .* does not fit 32 bits"),
    "alignment": (given(alignment="middle"), ValueError, 'alignment: must be "top_left" or "bottom_right"'),
    "scale": (given(scale=float("nan")), ValueError, "scale: must be finite and not 0"),
    "scale zero": (given(scale=0.0), ValueError, "scale: must be finite and not 0"),
}


@pytest.mark.parametrize("name", CASES)
def test_refused(device, name):
    change, exception, text = CASES[name]
    batch = Batch([3, 5], dtype=torch.bfloat16, device=device)
    good = dict(q=batch.q, k=batch.k, v=batch.v, kv_offsets=batch.kv_offsets, **PLAIN)
    jfa.attention(**good)
    move = lambda value: value.to(device) if isinstance(value, torch.Tensor) else value
    with pytest.raises(exception, match="jfa: .*" + text):
        jfa.attention(**{key: move(value) for key, value in change(good).items()})
    if device == "cuda":
        torch.cuda.synchronize()


@pytest.mark.parametrize(
    "values,text",
    [
        ((0, 5, 3), r"kv_offsets\[2\] is 3, but must be at least kv_offsets\[1\] = 5"),
        ((-1, 5, 8), r"kv_offsets\[0\] is -1"),
        ((0, 5, 9), r"kv_offsets\[2\] is 9, but must be at most the 8 rows"),
        ((0, 0, 8), r"kv_offsets\[1\] is 0, but must be at most max_seqlen_kv = 5"),
    ],
)
def test_bad_offsets_on_the_cpu(values, text):
    batch = Batch([3, 5])
    with pytest.raises(ValueError, match=text):
        jfa.attention(*batch.inputs, offsets(*values), max_seqlen_kv=5)


def test_gaps_that_were_promised_not_to_be():
    batch = Batch([3, 5])
    with pytest.raises(ValueError, match="no_gaps: the sequences must cover every row"):
        jfa.attention(*batch.inputs, offsets(0, 3, 7), max_seqlen_kv=5, no_gaps=True)


def test_operators_check_too():
    """The operators are public: what reaches them past jfa.attention is checked again."""
    batch = Batch([3, 5])
    rest = (batch.kv_offsets, None, None, 0, 5, -1, -1, False, 0.0, False, False, 0)
    o, lse = torch.ops.jfa.forward(*batch.inputs, *rest)
    grad_o = torch.ones_like(o)
    torch.ops.jfa.backward(grad_o, *batch.inputs, o, lse, *rest)
    for arguments, text in (
        ((grad_o[:1], *batch.inputs, o, lse), "grad_o: must have the shape of o"),
        ((grad_o.half(), *batch.inputs, o, lse), "grad_o: must be of q's type"),
        ((grad_o, *batch.inputs, o[:1], lse), "o: must be the forward's"),
        ((grad_o, *batch.inputs, o, lse[:1]), "lse: must be the forward's"),
        ((grad_o, *batch.inputs, o, lse.double()), "lse: must be the forward's"),
    ):
        with pytest.raises(ValueError, match=text):
            torch.ops.jfa.backward(*arguments, *rest)


@needs_cuda
@pytest.mark.parametrize("name", ["k", "v", "kv_offsets", "q_offsets", "kv_lengths"])
def test_mixed_devices(name):
    batch = Batch([3, 5], [2, 2], dtype=torch.bfloat16, device="cuda")
    good = dict(q=batch.q, k=batch.k, v=batch.v, kv_offsets=batch.kv_offsets, **batch.options)
    good |= dict(kv_lengths=offsets(3, 5).cuda())
    jfa.attention(**good)
    with pytest.raises(ValueError, match=f"{name}: must be on the device of q"):
        jfa.attention(**good | {name: good[name].cpu()})


@needs_cuda
def test_float32_on_the_gpu():
    batch = Batch([3, 5], device="cuda")
    with pytest.raises(ValueError, match="q: float32 is for tensors of the CPU; on CUDA use bfloat16 or float16"):
        jfa.attention(*batch.inputs, batch.kv_offsets, **batch.options)
