"""Plans, nested tensors and dealing to ranks; threads on the CPU and the GPU."""

import copy
import gc
import pickle
import threading

import pytest
import torch
from reference import Batch, compare

import jfa


def test_a_plan_lists_tiles_once():
    """On the CPU a plan copies the offsets: a change behind its back goes unseen until the next update."""
    batch = Batch([3, 5])
    hidden = batch.kv_offsets.numpy()  # Writes here do not count as changes of the tensor.
    plan = jfa.Plan().update(batch.kv_offsets)
    attend = lambda **options: jfa.attention(*batch.inputs, batch.kv_offsets, max_seqlen_kv=8, **options)
    before = attend(plan=plan)
    hidden[1] = 4
    after = attend()
    assert torch.equal(attend(plan=plan), before)
    with plan:
        assert torch.equal(attend(), before)
        grads = torch.autograd.grad(attend(), batch.inputs, torch.ones_like(before))
    assert not torch.equal(after, before)
    assert torch.equal(attend(), after)
    plan.update(batch.kv_offsets)
    assert torch.equal(attend(plan=plan), after)
    hidden[1] = 3
    wanted = torch.autograd.grad(attend(), batch.inputs, torch.ones_like(before))
    assert all(torch.equal(a, b) for a, b in zip(grads, wanted))


def test_layers_of_different_kinds_share_a_plan(device):
    batch = Batch([30, 0, 17], [20, 9, 17], 4, 2, dtype=torch.bfloat16, device=device)
    plan = jfa.Plan().update(batch.kv_offsets, q_offsets=batch.q_offsets)
    for options in (dict(), dict(causal=True), dict(), dict(window=(4, 2)), dict(causal=True)):
        call = lambda q, k, v: jfa.attention(
            q, k, v, batch.kv_offsets, return_lse=True, plan=plan, **batch.options, **options
        )
        compare(batch, call, **options)
    plan.check()


def test_batches_under_way_together(device):
    """The backward of an earlier batch, after the plan has a new one: the right gradients nevertheless."""
    plan = jfa.Plan()
    under_way = []
    for lengths in ([30, 0, 17], [1, 40, 6], [15, 16, 16]):  # As many rows each: only the offsets differ.
        batch = Batch(lengths, dtype=torch.bfloat16, device=device)
        plan.update(batch.kv_offsets)
        under_way.append((batch, jfa.attention(*batch.inputs, batch.kv_offsets, max_seqlen_kv=64, plan=plan)))
    for batch, o in under_way:
        alone = jfa.attention(*batch.inputs, batch.kv_offsets, max_seqlen_kv=64)
        assert torch.equal(o, alone)
        grad_o = torch.randn_like(o)
        grads = torch.autograd.grad(o, batch.inputs, grad_o)
        for grad, wanted in zip(grads, torch.autograd.grad(alone, batch.inputs, grad_o)):
            torch.testing.assert_close(grad, wanted, rtol=2e-2, atol=2e-2)


def test_a_plan_that_is_gone(device):
    batch = Batch([30, 0, 17], dtype=torch.bfloat16, device=device)
    plan = jfa.Plan().update(batch.kv_offsets)
    o = jfa.attention(*batch.inputs, batch.kv_offsets, max_seqlen_kv=64, plan=plan)
    del plan
    gc.collect()
    o.float().sum().backward()
    assert batch.k.grad.isfinite().all()


def test_copies_have_plans_of_their_own():
    plan = jfa.Plan()
    assert len({plan._id, copy.deepcopy(plan)._id, pickle.loads(pickle.dumps(plan))._id}) == 3


def test_changes_in_place(device):
    batch = Batch([3, 5], dtype=torch.bfloat16, device=device)
    plan = jfa.Plan().update(batch.kv_offsets)
    o = jfa.attention(*batch.inputs, batch.kv_offsets, max_seqlen_kv=8, plan=plan)
    batch.kv_offsets.copy_(torch.tensor([0, 4, 8]))
    with pytest.raises(RuntimeError, match="kv_offsets: changed in place since plan.update"):
        jfa.attention(*batch.inputs, batch.kv_offsets, max_seqlen_kv=8, plan=plan)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        o.float().sum().backward()
    plan.update(batch.kv_offsets)
    with plan:
        inside = jfa.attention(*batch.inputs, batch.kv_offsets, max_seqlen_kv=8)
    assert torch.equal(inside, jfa.attention(*batch.inputs, batch.kv_offsets, max_seqlen_kv=8))


def test_with_blocks_nest_and_belong_to_their_thread():
    outer, inner = jfa.Plan(), jfa.Plan()
    seen = []
    current = jfa._plan.current_plan
    with outer:
        with inner:
            thread = threading.Thread(target=lambda: seen.append(current()))
            thread.start()
            thread.join()
            assert current() is inner
        assert current() is outer
    assert current() is None and seen == [None]


def test_threads(device):
    """Forward and backward on several threads at once, with and without a common plan."""
    batches = [Batch([7 * i + 1, 0, 90 - i], dtype=torch.bfloat16, device=device) for i in range(8)]
    plan = jfa.Plan().update(batches[0].kv_offsets)
    attend = lambda b, **options: jfa.attention(*b.inputs, b.kv_offsets, max_seqlen_kv=128, **options)
    grads = lambda b, o: torch.autograd.grad(o, b.inputs, torch.ones_like(o))
    wanted = [(attend(b), grads(b, attend(b))) for b in batches]
    failures = []

    def work(index):
        try:
            for turn in range(10):
                batch = batches[(index + turn) % len(batches)]
                o = attend(batch, plan=plan if turn % 2 else None)
                expected_o, expected_grads = wanted[(index + turn) % len(batches)]
                assert torch.equal(o, expected_o)
                for a, b in zip(grads(batch, o), expected_grads):
                    torch.testing.assert_close(a, b, rtol=2e-2, atol=2e-2)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


def test_many_sizes(device):
    """More kinds of batches than plans are kept."""
    batch = Batch([3, 5], dtype=torch.bfloat16, device=device)
    first = jfa.attention(*batch.inputs, batch.kv_offsets, max_seqlen_kv=5)
    for window in range(100):
        jfa.attention(*batch.inputs, batch.kv_offsets, max_seqlen_kv=5, window=(window, 0))
    assert torch.equal(jfa.attention(*batch.inputs, batch.kv_offsets, max_seqlen_kv=5), first)


def jagged(lengths, heads, device, dtype=torch.bfloat16, requires_grad=True):
    parts = [torch.randn(n, heads, 64, dtype=dtype, device=device) for n in lengths]
    return torch.nested.nested_tensor(parts, layout=torch.jagged, requires_grad=requires_grad)


def test_nested_tensors(device):
    k = jagged([5, 0, 17], 2, device)
    v = torch.nested.nested_tensor_from_jagged(torch.randn_like(k.values().detach()).requires_grad_(), k.offsets())
    q = jagged([3, 9, 1], 4, device)
    o = jfa.attention(q, k, v, max_seqlen_kv=17, max_seqlen_q=9, causal=True)
    options = dict(q_offsets=q.offsets(), max_seqlen_kv=17, max_seqlen_q=9, causal=True)
    wanted = jfa.attention(q.values(), k.values(), v.values(), k.offsets(), **options)
    assert o.is_nested and o.shape[1] == q.shape[1] and torch.equal(o.values(), wanted)
    (grad_k,) = torch.autograd.grad(o.values().float().sum(), k)
    assert grad_k.is_nested and grad_k.values().abs().sum() > 0
    # Their lengths are known where PyTorch has them.
    assert torch.equal(jfa.attention(q, k, v, causal=True).values(), wanted)
    dense = torch.randn(4, 4, 64, dtype=torch.bfloat16, device=device)
    broadcast = jfa.attention(dense, k, v, max_seqlen_kv=17)
    assert broadcast.shape == (3, 4, 4, 64)
    assert torch.equal(broadcast, jfa.attention(dense, k.values(), v.values(), k.offsets(), max_seqlen_kv=17))
    own = lambda x: jfa.attention(x, x, x, max_seqlen_kv=17, max_seqlen_q=17).values()
    torch.testing.assert_close(torch.compile(own, fullgraph=True)(k), own(k))


def test_nested_tensors_with_lengths(device):
    """torch.nested.narrow: padded slots, of which only the beginnings are used."""
    padded = torch.randn(3, 20, 2, 64, dtype=torch.bfloat16, device=device)
    start = torch.zeros(3, dtype=torch.int64, device=device)
    length = torch.tensor([5, 20, 1], device=device)
    k = torch.nested.narrow(padded, 1, start, length, layout=torch.jagged)
    q = torch.randn(4, 2, 64, dtype=torch.bfloat16, device=device)
    o = jfa.attention(q, k, k, max_seqlen_kv=20)
    for b, n in enumerate(length.tolist()):
        part = padded[b, :n]
        wanted = jfa.attention(q, part, part, torch.tensor([0, n], device=device), max_seqlen_kv=20)
        torch.testing.assert_close(o[b], wanted[0])


def test_nested_tensors_refused():
    k, q = jagged([5, 3], 2, "cpu"), torch.randn(4, 2, 64, dtype=torch.bfloat16)
    rows = torch.randn(8, 2, 64, dtype=torch.bfloat16)
    offsets = torch.tensor([0, 5, 8])
    for arguments, options, text in (
        ((q, k, rows), {}, "v: must be nested, since k or q is"),
        ((q, rows, k), {}, "k: must be nested, since v is"),
        ((k, rows, rows), {}, "k: must be nested"),
        ((q, k, k, offsets), {}, "kv_offsets: nested tensors bring their offsets along"),
        ((q, k, k), dict(q_offsets=offsets), "kv_offsets: nested tensors bring their offsets along"),
        ((q, k, jagged([5, 3], 2, "cpu")), {}, "v: must have the sequences of k"),
        ((q, k.transpose(1, 2), k.transpose(1, 2)), {}, "k: a nested tensor must be torch.jagged"),
    ):
        with pytest.raises(ValueError, match=text):
            jfa.attention(*arguments, max_seqlen_kv=5, **options)


def test_balance():
    # 6, 5 there and 4, 3 back, 2, 1 there again.
    assert jfa.balance([5, 1, 4, 2, 3, 6], 2) == [[3, 4, 5], [0, 1, 2]]
    lengths = torch.randint(1, 700, (943,))
    for world_size in (1, 2, 4, 8, 3):
        ranks = jfa.balance(lengths, world_size)
        assert sorted(sum(ranks, [])) == list(range(943))
        counts = [len(rank) for rank in ranks]
        work = [sum(lengths[i].item() for i in rank) for rank in ranks]
        assert max(counts) - min(counts) <= 1
        assert max(work) - min(work) <= lengths.max().item()
        assert max(work) / (sum(work) / world_size) < 1.02
    assert jfa.balance([], 3) == [[], [], []]
    assert jfa.balance([7], 2) == [[0], []]
    assert jfa.balance([1, 1, 1, 1], 2) == [[0, 3], [1, 2]]


def test_balance_refuses():
    for arguments, text in (
        (([1, 2], 0), "world_size: must be an integer of 1 or more, but is 0"),
        (([1, -2], 2), r"lengths\[1\]: must be 0 or more, but is -2"),
        (([1, float("nan")], 2), r"lengths\[1\]: must be 0 or more"),
        ((torch.ones(2, 2), 2), "lengths: must be a vector"),
    ):
        with pytest.raises(ValueError, match=text):
            jfa.balance(*arguments)
