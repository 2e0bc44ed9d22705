"""torch.library's own checks, torch.compile, torch.export, and the count of operations."""

import pytest
import torch
from reference import Batch, compare
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

import jfa


def operands(batch, window=(-1, -1), alignment=False):
    """Arguments of torch.ops.jfa.forward."""
    longest_q = 0 if batch.broadcast else max(batch.len_q)
    rest = (longest_q, max(batch.len_kv), *window, alignment, 0.0, False, False, 0)
    return *batch.inputs, batch.kv_offsets, batch.q_offsets, None, *rest


BATCHES = {
    "broadcast": dict(len_kv=[5, 0, 17]),
    "packed": dict(len_kv=[5, 0, 17], len_q=[4, 3, 0], heads_q=4, heads_kv=2, index_type=torch.int64),
}


def make(name, device):
    return Batch(**BATCHES[name], dtype=torch.bfloat16 if device == "cuda" else torch.float32, device=device)


def attend(q, k, v, kv_offsets, q_offsets, max_seqlen_kv):
    """A small layer around the operator, so that there is something to fuse."""
    options = dict(max_seqlen_kv=max_seqlen_kv, max_seqlen_q=max_seqlen_kv, causal=True, alignment="bottom_right")
    return jfa.attention(q * 2.0, k + 1.0, v, kv_offsets, q_offsets=q_offsets, **options).sin()


@pytest.mark.parametrize("name", BATCHES)
def test_opcheck(device, name):
    batch = make(name, device)
    torch.library.opcheck(torch.ops.jfa.forward.default, operands(batch))
    torch.library.opcheck(torch.ops.jfa.forward.default, operands(batch, (3, 0), True))
    q, k, v, *rest = operands(batch)
    q, k, v = (t.detach() for t in (q, k, v))
    o, lse = torch.ops.jfa.forward(q, k, v, *rest)
    # Its gradient is a refusal, which is no failure of the registration.
    torch.library.opcheck(torch.ops.jfa.backward.default, (torch.randn_like(o), q, k, v, o, lse, *rest))


@pytest.mark.parametrize("name", BATCHES)
def test_fake_tensors_are_like_the_real_ones(name):
    """Also in their strides, which opcheck does not compare; for inputs that are not contiguous, too."""
    batch = make(name, "cpu")
    q, k, v, *rest = (t.detach() if isinstance(t, torch.Tensor) else t for t in operands(batch))
    q, k, v = (t.transpose(0, 1).contiguous().transpose(0, 1) for t in (q, k, v))
    o, lse = torch.ops.jfa.forward(q, k, v, *rest)
    real = o, lse, *torch.ops.jfa.backward(o, q, k, v, o, lse, *rest)
    with FakeTensorMode() as mode:
        fake = lambda value: mode.from_tensor(value) if isinstance(value, torch.Tensor) else value
        q, k, v, *rest = map(fake, (q, k, v, *rest))
        o, lse = torch.ops.jfa.forward(q, k, v, *rest)
        for a, b in zip(real, (o, lse, *torch.ops.jfa.backward(o, q, k, v, o, lse, *rest))):
            assert (a.shape, a.stride(), a.dtype, a.device) == (b.shape, b.stride(), b.dtype, b.device)


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize("dynamic", [None, True])
def test_compile(device, name, dynamic):
    batch = make(name, device)
    compiled = torch.compile(attend, fullgraph=True, dynamic=dynamic)
    results = []
    for function in (attend, compiled):
        o = function(*batch.inputs, batch.kv_offsets, batch.q_offsets, 32)
        results.append((o, *torch.autograd.grad(o.float().square().sum(), batch.inputs)))
    for eager, fused in zip(*results):
        torch.testing.assert_close(fused, eager, rtol=2e-2 if device == "cuda" else 1e-4, atol=1e-3)


def test_compiles_twice_at_most(device):
    """Once for the first shape, once for all others."""
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(attend, fullgraph=True, backend=counter)
    for lengths, longest in (([5, 3], 5), ([9, 0, 4], 16), ([40, 2], 47), ([7, 7, 7, 7], 100)):
        batch = Batch(lengths, dtype=torch.bfloat16, device=device)
        compiled(*batch.inputs, batch.kv_offsets, None, longest).float().sum().backward()
    assert counter.frame_count == 2


def test_compile_with_plan(device):
    """Updates come between the calls; they neither break the graph nor make it anew."""
    plan = jfa.Plan()
    counter = CompileCounterWithBackend("aot_eager")

    @torch.compile(fullgraph=True, backend=counter)
    def layers(q, k, v, kv_offsets, plan):
        options = dict(max_seqlen_kv=64, plan=plan)
        first = jfa.attention(q, k, v, kv_offsets, **options)
        return jfa.attention(first.sum(0), k, v, kv_offsets, **options)

    for lengths in ([5, 0, 17], [20, 1, 1]):
        batch = Batch(lengths, dtype=torch.bfloat16, device=device)
        plan.update(batch.kv_offsets)
        o = layers(*batch.inputs, batch.kv_offsets, plan)
        grads = torch.autograd.grad(o.float().sum(), batch.inputs)
        first = jfa.attention(*batch.inputs, batch.kv_offsets, max_seqlen_kv=64)
        wanted = jfa.attention(first.sum(0), batch.k, batch.v, batch.kv_offsets, max_seqlen_kv=64)
        torch.testing.assert_close(o, wanted)
        for grad, eager in zip(grads, torch.autograd.grad(wanted.float().sum(), batch.inputs)):
            torch.testing.assert_close(grad, eager, rtol=2e-2, atol=2e-2)
    assert counter.frame_count <= 2
    # An open `with` block reaches compiled functions, too.
    compiled = torch.compile(attend, fullgraph=True)
    with plan:
        o = compiled(*batch.inputs, batch.kv_offsets, None, 64)
    torch.testing.assert_close(o, attend(*batch.inputs, batch.kv_offsets, None, 64), rtol=2e-2, atol=2e-2)


def test_fake_tensors_refuse_bad_shapes():
    batch = Batch([5, 3])
    compiled = torch.compile(lambda q, k, v, offsets: jfa.attention(q, k, v, offsets, max_seqlen_kv=5), fullgraph=True)
    with pytest.raises(Exception, match="jfa: v: must have the shape of k"):
        compiled(batch.q, batch.k, batch.v[:-1], batch.kv_offsets)
    with pytest.raises(Exception, match="jfa: kv_offsets: must be int32 or int64"):
        compiled(*batch.inputs, batch.kv_offsets.float())


def test_export(device):
    class Model(torch.nn.Module):
        def forward(self, q, k, v, kv_offsets):
            return jfa.attention(q, k, v, kv_offsets, max_seqlen_kv=64, causal=True)

    def tensors(lengths):
        batch = Batch(lengths, dtype=torch.bfloat16, device=device)
        return *(t.detach() for t in batch.inputs), batch.kv_offsets

    rows, offsets = torch.export.Dim("rows", min=2), torch.export.Dim("offsets", min=3)
    shapes = ({}, {0: rows}, {0: rows}, {0: offsets})
    exported = torch.export.export(Model(), tensors([5, 9]), dynamic_shapes=shapes)
    assert [node.target for node in exported.graph.nodes].count(torch.ops.jfa.forward.default) == 1
    other = tensors([20, 0, 31, 4])
    assert torch.equal(exported.module()(*other), Model()(*other))
    compare_eager = exported.run_decompositions().module()
    assert torch.equal(compare_eager(*other), Model()(*other))


def test_training_under_compile_converges_to_float64(device):
    """The compiled function passes the same comparison with float64 as the plain one."""
    batch = Batch([30, 0, 70], [20, 5, 64], 4, 2, dtype=torch.bfloat16, device=device)
    options = dict(causal=True, alignment="bottom_right")
    compiled = torch.compile(jfa.attention, fullgraph=True)
    call = lambda q, k, v: compiled(q, k, v, batch.kv_offsets, return_lse=True, **batch.options, **options)
    compare(batch, call, **options)


def test_flops(device):
    """4 for each query, key, head and element forward, and 2.5 times as many backward."""
    for len_q in (7, [3, 1, 5]):
        batch = Batch([5, 0, 17], len_q, 4, 2, dtype=torch.bfloat16, device=device)
        queries = [7, 7, 7] if len_q == 7 else len_q
        pairs = sum(a * b for a, b in zip(queries, batch.len_kv))
        with FlopCounterMode(display=False) as counter:
            jfa.attention(*batch.inputs, batch.kv_offsets, **batch.options).float().sum().backward()
        counts = counter.get_flop_counts()["Global"]
        assert counts[torch.ops.jfa.forward] == 4 * 4 * 64 * pairs
        assert counts[torch.ops.jfa.backward] == 10 * 4 * 64 * pairs
