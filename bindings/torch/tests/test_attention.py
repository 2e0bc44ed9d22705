"""Results and gradients against float64, and against PyTorch's own attention."""

import itertools

import pytest
import torch
from conftest import CUDA_MISSING, needs_cuda
from reference import TOLERANCE, Batch, compare, dtypes, error, visible
from torch.autograd import forward_ad
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

import jfa

# One axis at a time away from the first case.
SHAPES = {
    "broadcast": dict(len_kv=[5, 0, 70, 1, 33]),
    "packed": dict(len_kv=[5, 0, 70, 1, 33], len_q=[3, 2, 65, 0, 40]),
    "self": dict(len_kv=[17, 64, 1, 0, 129], len_q=[17, 64, 1, 0, 129]),
    "gqa": dict(len_kv=[40, 9], len_q=[33, 20], heads_q=6, heads_kv=2),
    "mqa broadcast": dict(len_kv=[40, 9, 0], len_q=20, heads_q=4, heads_kv=1),
    "d128": dict(len_kv=[40, 9], dim=128),
    "d8": dict(len_kv=[40, 9], dim=8),
    "d40 int64": dict(len_kv=[40, 9], len_q=[10, 11], dim=40, index_type=torch.int64),
    "d256": dict(len_kv=[40, 9], dim=256),
    "all empty": dict(len_kv=[0, 0, 0]),
    "no queries": dict(len_kv=[5, 9], len_q=[0, 0]),
    "no sequences": dict(len_kv=[]),
}
MASKS = {
    "full": {},
    "causal": dict(causal=True),
    "causal bottom right": dict(causal=True, alignment="bottom_right"),
    "window": dict(window=(7, 3)),
    "window left bottom right": dict(window=(5, None), alignment="bottom_right"),
    "causal window": dict(window=(9, -1), causal=True),
    "scale": dict(scale=0.3),
}


def attention(batch, **options):
    return lambda q, k, v: jfa.attention(q, k, v, batch.kv_offsets, return_lse=True, **batch.options, **options)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("shape", [name for name in SHAPES if name not in ("no sequences",)])
def test_against_float64(device, shape, mask):
    for dtype in dtypes(device):
        batch = Batch(**SHAPES[shape], dtype=dtype, device=device)
        compare(batch, attention(batch, **MASKS[mask]), **MASKS[mask])


def test_no_sequences(device):
    batch = Batch([], dtype=torch.bfloat16, device=device)
    o, lse = attention(batch)(*batch.inputs)
    assert o.shape == (0, 4, 2, 64) and lse.shape == (0, 2, 4)
    o.sum().backward()
    assert batch.q.grad.abs().sum() == 0 and batch.k.grad.shape == (0, 2, 64)


@pytest.mark.parametrize("alignment", ["top_left", "bottom_right"])
@pytest.mark.parametrize("causal", [False, True])
def test_against_pytorch_sequence_by_sequence(device, causal, alignment):
    """scaled_dot_product_attention in float64; its is_causal is our "top_left"."""
    batch = Batch([9, 40, 65], [20, 40, 7], heads_q=4, heads_kv=2, dtype=dtypes(device)[-1], device=device)
    q, k, v = (t.detach().double().requires_grad_() for t in batch.inputs)
    heads_first = lambda t: t.transpose(0, 1)[None]
    parts = []
    for q1, k1, v1 in zip(q.split(batch.len_q), k.split(batch.len_kv), v.split(batch.len_kv)):
        mask = dict(is_causal=causal)
        if causal and alignment == "bottom_right":
            seen = visible(q1.shape[0], k1.shape[0], causal=True, alignment=alignment)
            mask = dict(attn_mask=seen.to(device))
        part = scaled_dot_product_attention(*map(heads_first, (q1, k1, v1)), enable_gqa=True, **mask)
        # A row that sees no key is 0 here and, from version to version, NaN there.
        parts.append(part[0].transpose(0, 1).nan_to_num())
    wanted = torch.cat(parts)
    o = attention(batch, causal=causal, alignment=alignment)(*batch.inputs)[0]
    grad_o = torch.randn_like(o)
    assert error(o, wanted) < TOLERANCE[batch.dtype]
    grads = torch.autograd.grad(o, batch.inputs, grad_o)
    for grad, reference in zip(grads, torch.autograd.grad(wanted, (q, k, v), grad_o.double())):
        assert error(grad, reference.nan_to_num()) < TOLERANCE[batch.dtype]


SEQLENS = [(1, 147), (113, 203), (128, 217), (113, 211), (108, 256), (256, 512), (512, 256)]
LONG_SEQLENS = [(1024, 1024), (1023, 1024), (1024, 1023), (2048, 2048)]
DIMS = [32, 40, 64, 80, 96, 128, 160, 192, 224, 256]
# The processor tries the shorter ones with one size of heads.
GRID = [("cpu", 64, *lengths) for lengths in SEQLENS]
if CUDA_MISSING is None:
    GRID += [("cuda", dim, *lengths) for dim, lengths in itertools.product(DIMS, SEQLENS + LONG_SEQLENS)]
else:
    GRID += [pytest.param("cuda", 64, *LONG_SEQLENS[0], marks=needs_cuda)]


@pytest.mark.parametrize("device,dim,seqlen_q,seqlen_kv", GRID)
@pytest.mark.parametrize("kind", ["full", "causal", "local"])
@pytest.mark.parametrize("heads", ["mha", "gqa", "mqa"])
def test_varlen_grid(device, dim, seqlen_q, seqlen_kv, kind, heads):
    """The semantics of FlashAttention's varlen interface: random lengths, bottom-right causal masks and windows."""
    heads_kv = {"mha": 4, "gqa": 2, "mqa": 1}[heads]
    count = 3 if device == "cpu" else 6
    lengths = lambda longest: torch.randint(max(1, longest - 40), longest + 1, (count - 1,)).tolist() + [0]
    batch = Batch(lengths(seqlen_kv), lengths(seqlen_q), 4, heads_kv, dim, torch.bfloat16, device)
    mask = dict(alignment="bottom_right")
    if kind == "causal":
        mask |= dict(causal=True)
    elif kind == "local":
        mask |= dict(window=tuple(torch.randint(0, seqlen_kv, (2,)).tolist()))
    compare(batch, attention(batch, **mask), **mask)


def test_gradcheck():
    """Numerical differences in float32: coarse, but made from nothing but the forward."""
    batch = Batch([3, 0, 6], 2, heads_q=2, heads_kv=1, dim=8)
    attend = lambda q, k, v: jfa.attention(q, k, v, batch.kv_offsets, window=(2, 1), **batch.options)
    kwargs = dict(eps=2e-2, atol=5e-3, rtol=2e-2, nondet_tol=0.0)
    with pytest.warns(UserWarning, match="double precision"):
        assert torch.autograd.gradcheck(attend, batch.inputs, **kwargs)


def test_strides_and_addresses(device):
    """Slices of one projection are read in place, expanded and unaligned ones by a copy."""
    batch = Batch([5, 0, 70, 1], heads_q=2, dtype=torch.bfloat16, device=device)
    rows = sum(batch.len_kv)
    plain = attention(batch)(*batch.inputs)[0]
    both = torch.stack([batch.k, batch.v], dim=1).detach()
    sliced = attention(batch)(batch.q, both[:, 0], both[:, 1])[0]
    assert torch.equal(plain, sliced)
    heads_outside = batch.k.detach().transpose(0, 1).contiguous().transpose(0, 1)
    assert torch.equal(plain, attention(batch)(batch.q, heads_outside, batch.v)[0])
    unaligned = torch.empty(rows * 2 * 64 + 1, dtype=torch.bfloat16, device=device)[1:].view(rows, 2, 64)
    unaligned.copy_(batch.k.detach())
    assert torch.equal(plain, attention(batch)(batch.q, unaligned, batch.v)[0])
    expanded = batch.k.detach()[:, :1].expand(-1, 2, -1)
    assert torch.equal(
        attention(batch)(batch.q, expanded, batch.v)[0], attention(batch)(batch.q, expanded.contiguous(), batch.v)[0]
    )
    # The gradient of a sum is one number, expanded.
    o = attention(batch)(*batch.inputs)[0]
    expanded_grads = torch.autograd.grad(o.sum(), batch.inputs, retain_graph=True)
    for a, b in zip(expanded_grads, torch.autograd.grad(o, batch.inputs, torch.ones_like(o))):
        assert torch.equal(a, b)


@pytest.mark.parametrize("packed", [False, True])
def test_rows_outside_of_sequences(device, packed):
    """They are not read, and give zeros: in O and in all gradients."""
    batch = Batch([4, 6, 5], [3, 4, 5] if packed else 4, dtype=torch.bfloat16, device=device)
    kv_offsets = torch.tensor([2, 6, 12], dtype=torch.int32, device=device)
    lengths = torch.tensor([3, 6], dtype=torch.int32, device=device)
    options = dict(max_seqlen_kv=6, kv_lengths=lengths)
    if packed:
        options |= dict(q_offsets=torch.tensor([1, 4, 8], dtype=torch.int32, device=device), max_seqlen_q=4)
    used = torch.zeros(15, dtype=torch.bool, device=device)
    used[2:5] = used[6:12] = True
    for tensor in (batch.k, batch.v):
        tensor.data[~used] = torch.nan
    o, lse = jfa.attention(*batch.inputs, kv_offsets, return_lse=True, **options)
    assert not o.isnan().any()
    grads = torch.autograd.grad(o, batch.inputs, torch.randn_like(o))
    assert all(grad[~used].abs().sum() == 0 and grad[used].abs().min() > 0 for grad in grads[1:])
    if packed:
        outside = [0, 8, 9, 10, 11]
        assert o[outside].abs().sum() == 0 and grads[0][outside].abs().sum() == 0
        assert (lse[:, outside] == -torch.inf).all() and lse[:, 1:8].isfinite().all()
    # The same batch without the rows between, and the promise that there are none.
    q = batch.q[1:8] if packed else batch.q
    dense = dict(max_seqlen_kv=6, no_gaps=True)
    if packed:
        dense |= dict(q_offsets=torch.tensor([0, 3, 7], dtype=torch.int32, device=device), max_seqlen_q=4)
    kept = torch.tensor([0, 3, 9], dtype=torch.int32, device=device)
    wanted = jfa.attention(q, batch.k[used], batch.v[used], kept, **dense)
    assert error(o[1:8] if packed else o, wanted) < TOLERANCE[torch.bfloat16]


def test_lse_has_no_gradient():
    batch = Batch([5, 3])
    o, lse = attention(batch)(*batch.inputs)
    assert o.requires_grad and not lse.requires_grad


def test_second_derivative_is_refused(device):
    batch = Batch([5, 3], dtype=torch.bfloat16, device=device)
    o = attention(batch)(*batch.inputs)[0]
    (grad,) = torch.autograd.grad(o.float().square().sum(), batch.q, create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        grad.float().square().sum().backward()


def test_other_kinds_of_derivatives_are_refused():
    batch = Batch([5, 3])
    attend = lambda q: jfa.attention(q, batch.k, batch.v, batch.kv_offsets, **batch.options).sum()
    q = batch.q.detach()
    with pytest.raises(NotImplementedError, match="jfa: attention has no forward-mode derivative"):
        torch.func.jvp(attend, (q,), (q,))
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="no forward-mode derivative"):
        attend(forward_ad.make_dual(q, q))
    with pytest.raises(NotImplementedError, match="jfa: attention has no gradient under torch.func"):
        torch.func.grad(attend)(q)


def test_checkpointing(device):
    """The forward again in the backward, on a thread of autograd's."""
    batch = Batch([30, 0, 17], dtype=torch.bfloat16, device=device)
    call = lambda q, k, v: checkpoint(attention(batch), q, k, v, use_reentrant=False)
    compare(batch, call)


def test_autocast(device):
    batch = Batch([5, 3], dtype=torch.float32, device=device)
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast(device, dtype):
            o = attention(batch)(*batch.inputs)[0]
            mixed = jfa.attention(batch.q.to(dtype), batch.k, batch.v, batch.kv_offsets, **batch.options)
        assert o.dtype == mixed.dtype == dtype
        assert torch.equal(o, mixed)
        grads = torch.autograd.grad(o.float().sum(), batch.inputs)
        assert all(grad.dtype == torch.float32 for grad in grads)
        with torch.autocast(device, dtype), torch.autocast(device, enabled=False):
            if device == "cpu":
                assert attention(batch)(*batch.inputs)[0].dtype == torch.float32


def test_deterministic(device):
    """The backward twice, bit by bit: by the argument, and by PyTorch's global switch."""
    batch = Batch(torch.randint(0, 300, (20,)).tolist(), 70, dtype=torch.bfloat16, device=device)

    def gradients(**options):
        o = attention(batch, **options)(*batch.inputs)[0]
        return torch.autograd.grad(o, batch.inputs, torch.ones_like(o))

    runs = [gradients(deterministic=True), gradients(deterministic=True)]
    torch.use_deterministic_algorithms(True)
    try:
        runs.append(gradients())
    finally:
        torch.use_deterministic_algorithms(False)
    for run in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(run, runs[0]))
