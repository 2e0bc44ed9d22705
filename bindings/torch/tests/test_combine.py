"""Keys in parts: `combine`, and `attention_sharded` on several processes."""

import os

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from conftest import CUDA_MISSING
from reference import TOLERANCE, Batch, compare, dtypes, error

import jfa


def shards(batch, count):
    """K, V and options of each part: of sequence b, part p has every key whose number is p modulo `count`, but of the
    first sequence the last part has all."""
    parts = []
    for part in range(count):
        rows, offsets = [], [0]
        for b, (begin, end) in enumerate(zip(batch.kv_offsets.tolist(), batch.kv_offsets.tolist()[1:])):
            own = range(begin + part, end, count) if b else range(begin, end if part == count - 1 else begin)
            rows += own
            offsets.append(len(rows))
        k, v = (t.detach()[rows].requires_grad_() for t in (batch.k, batch.v))
        offsets = torch.tensor(offsets, dtype=batch.index_type, device=batch.device)
        options = {name: value for name, value in batch.options.items() if name != "max_seqlen_kv"}
        parts.append((rows, k, v, offsets, dict(max_seqlen_kv=max(1, len(rows)), **options)))
    return parts


@pytest.mark.parametrize("len_q", [4, [3, 9, 0, 5]])
@pytest.mark.parametrize("count", [1, 3])
def test_parts_make_the_whole(device, count, len_q):
    for dtype in dtypes(device):
        batch = Batch([17, 40, 5, 0], len_q, 4, 2, dtype=dtype, device=device)
        parts = [
            jfa.attention(batch.q.detach(), k.detach(), v.detach(), offsets, return_lse=True, **options)
            for _, k, v, offsets, options in shards(batch, count)
        ]
        o, lse = jfa.combine(*zip(*parts))
        wanted_o, wanted_lse, *_ = batch.reference(torch.zeros_like(o))
        assert o.dtype == dtype and lse.dtype == torch.float32
        assert error(o, wanted_o) < TOLERANCE[dtype]
        assert (
            torch.equal(lse.isinf(), wanted_lse.isinf()) and error(lse[~lse.isinf()], wanted_lse[~lse.isinf()]) < 1e-5
        )
        # In turns, with float32 between them; stacked, and views.
        so_far = jfa.combine([p[0].float() for p in parts[:1]], [parts[0][1]])
        for part in parts[1:]:
            so_far = jfa.combine([so_far[0], part[0].float()], [so_far[1], part[1]])
        assert error(so_far[0], wanted_o) < TOLERANCE[dtype]
        outs, lses = torch.stack([p[0] for p in parts]).float(), torch.stack([p[1] for p in parts])
        assert torch.equal(jfa.combine(outs, lses, dtype)[0], o)
        strided = outs.to(dtype).transpose(-2, -3).contiguous().transpose(-2, -3)
        assert torch.equal(jfa.combine(strided, lses)[0], o)


def test_rows_without_keys_and_nan(device):
    o = torch.full((3, 1, 8), torch.nan, device=device, dtype=torch.bfloat16)
    none = torch.full((1, 3), -torch.inf, device=device)
    merged, lse = jfa.combine([o, o], [none, none])
    assert merged.eq(0).all() and lse.eq(-torch.inf).all()
    seen = none.clone()
    seen[0, 1] = 2.0
    merged, lse = jfa.combine([o, torch.ones_like(o)], [none, seen])
    assert merged[1].eq(1).all() and merged[[0, 2]].eq(0).all() and lse.tolist()[0][1] == 2.0
    assert jfa.combine([o], [seen])[0][1].isnan().all()


def test_no_rows(device):
    o, lse = jfa.combine([torch.empty(0, 2, 8, device=device)], [torch.empty(2, 0, device=device)])
    assert o.shape == (0, 2, 8) and lse.shape == (2, 0)


def test_opcheck(device):
    outs = [torch.randn(5, 2, 16, device=device) for _ in range(3)]
    lses = [torch.randn(2, 5, device=device) for _ in range(3)]
    torch.library.opcheck(torch.ops.jfa.combine.default, (outs, lses, torch.bfloat16))
    compiled = torch.compile(lambda o, m: jfa.combine(o, m, torch.float16), fullgraph=True)
    for got, wanted in zip(compiled(outs, lses), jfa.combine(outs, lses, torch.float16)):
        assert torch.equal(got, wanted)


def test_refused():
    o, lse = torch.randn(5, 2, 16), torch.randn(2, 5)
    for arguments, kind, text in (
        (([], []), ValueError, "outs: must have at least one part"),
        (([o], [lse, lse]), ValueError, "lses: must be as many as outs, 1, but are 2"),
        (([o, 1], [lse, lse]), TypeError, r"outs\[1\]: must be a tensor, but is int"),
        (([o[0]], [lse]), ValueError, r"outs\[0\]: must be \(rows, heads, head_dim\)"),
        (([o, o[1:]], [lse, lse]), ValueError, r"outs\[1\]: must have the shape of outs\[0\]"),
        (([o, o.half()], [lse, lse]), ValueError, r"outs\[1\]: must be on the device and of the type"),
        (([o], [lse.double()]), ValueError, r"lses\[0\]: must be float32"),
        (([o], [lse.T]), ValueError, r"lses\[0\]: must be \(heads, rows\)"),
        (([o.double()], [lse]), ValueError, r"must be bfloat16, float16 or float32"),
        (([o.half()], [lse], torch.float32), ValueError, "part_dtype is Fp16"),
        (([o], [lse], torch.int32), ValueError, "dtype: must be bfloat16, float16 or float32"),
        (([o] * 65, [lse] * 65), ValueError, "num_parts is 65, but must be 1 to 64"),
        (([torch.randn(5, 2, 12)], [lse]), ValueError, "head_dim is 12"),
    ):
        with pytest.raises(kind, match=text):
            jfa.combine(*arguments)
    merged, _ = jfa.combine([o.requires_grad_()], [lse])
    with pytest.raises(NotImplementedError, match="combine has no gradient"):
        merged.sum().backward()


def test_sharded_needs_a_group():
    batch = Batch([3, 5])
    with pytest.raises(RuntimeError, match="init_process_group comes first"):
        jfa.attention_sharded(*batch.inputs, batch.kv_offsets, max_seqlen_kv=5)


def _rank(rank, world_size, device, file):
    """One process: its part of the keys gives the O, dK and dV that one process has for all of them, and the dQ."""
    device = device if device == "cpu" else f"{device}:{rank}"
    if device != "cpu":
        torch.cuda.set_device(device)
    backend = "gloo" if device == "cpu" else "nccl"
    dist.init_process_group(backend, init_method=f"file://{file}", rank=rank, world_size=world_size)
    for dtype in dtypes(device):
        for len_q in (4, [3, 9, 0, 5]):
            torch.manual_seed(1)
            batch = Batch([17, 40, 5, 0], len_q, 4, 2, dtype=dtype, device=device)
            rows, k, v, offsets, options = shards(batch, world_size)[rank]

            def call(q, whole_k, whole_v):
                """The whole call by way of this rank's part, for `compare`: a gather that autograd goes through."""
                return _Whole.apply(q, whole_k, whole_v, rows, k, v, offsets, options)

            compare(batch, call)
    with torch.autocast(device.split(":")[0], torch.bfloat16):
        q, k = (t.detach().float().requires_grad_() for t in (batch.q, k))
        o = jfa.attention_sharded(q, k, k, offsets, **options)
        assert o.dtype == torch.bfloat16
    (grad,) = torch.autograd.grad(o.float().sum(), q, retain_graph=True)
    assert grad.dtype == torch.float32
    with pytest.raises(NotImplementedError, match="no second derivative"):
        torch.autograd.grad(o.float().sum(), q, create_graph=True)
    if backend == "gloo":
        # Its destructor holds the interpreter's lock while it waits for threads, and those need that lock to drop the
        # tensors of the last exchange: now and then they wait for each other for ever.
        os._exit(0)
    dist.destroy_process_group()


class _Whole(torch.autograd.Function):
    """The sharded call as a function of all keys: gradients of the other ranks' keys come from them."""

    @staticmethod
    def forward(ctx, q, whole_k, whole_v, rows, k, v, offsets, options):
        with torch.enable_grad():
            q = q.detach().requires_grad_()
            o, lse = jfa.attention_sharded(q, k, v, offsets, return_lse=True, **options)
        ctx.parts, ctx.rows, ctx.o = (q, k, v), rows, o
        ctx.like = whole_k, whole_v
        ctx.mark_non_differentiable(lse)
        return o.detach(), lse

    @staticmethod
    def backward(ctx, grad_o, _):
        grad_q, *own = torch.autograd.grad(ctx.o, ctx.parts, grad_o)
        whole = [
            torch.zeros_like(t).index_copy(0, torch.tensor(ctx.rows, device=t.device), g) for t, g in zip(ctx.like, own)
        ]
        for tensor in whole:
            dist.all_reduce(tensor)
        return grad_q, *whole, *[None] * 5


@pytest.mark.parametrize("device,world_size", [("cpu", 2), ("cuda", 2), ("cuda", 4)])
def test_sharded(device, world_size, tmp_path):
    if device == "cuda" and (CUDA_MISSING is not None or torch.cuda.device_count() < world_size):
        pytest.skip(CUDA_MISSING or f"there are fewer than {world_size} GPUs")
    mp.spawn(_rank, (world_size, device, tmp_path / "meeting"), world_size)
