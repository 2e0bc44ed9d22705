#!/usr/bin/env python3
"""Tests jfa on a GPU machine that has PyTorch and no cargo: one command, one line a check.

Usage: python3 benchmarks/gpu_tests.py LIBJFA [--conformance PROGRAM] [--random N] [--json FILE] [--only TEXT]

PROGRAM is a jfa-conformance built elsewhere. The last line is `N passed, N failed`. What a machine lacks (a second GPU,
compute-sanitizer) is reported as skipped.
"""

import argparse
import ctypes
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import torch

import jfa_capi

DEVICE = "cuda:0"
LEGACY_STREAM, PER_THREAD_STREAM = 1, 2
INVALID_ARGUMENT, INVALID_OFFSETS = 1, 7
TOLERANCE = 0.004
LENGTHS = [0, 1, 63, 64, 65, 130, 300, 128, 5, 700, 0, 129, 127, 1000, 256, 17]


class Skipped(Exception):
    """The machine lacks what a check needs."""


def offsets_of(lengths, device=DEVICE, dtype=torch.int32):
    return torch.tensor([0, *lengths]).cumsum(0).to(device, dtype)


class Data:
    """Random tensors of one broadcast (`queries`) or packed self-attention problem, and a plan for them."""

    def __init__(self, lengths, queries=128, heads=4, heads_kv=None, dim=128, window=(-1, -1), dtype=torch.bfloat16,
                 device=DEVICE, longest=None, total=None, plan=True, bottom_right=False):
        self.lengths, self.queries, self.window, self.bottom_right = lengths, queries, window, bottom_right
        self.heads, self.dim, self.device = heads, dim, device
        total = total or sum(lengths)
        generator = torch.Generator(device=device).manual_seed(7)
        rows = lambda count, h: torch.randn(count, h, dim, device=device, dtype=dtype, generator=generator)
        self.q = rows(queries or total, heads)
        self.k, self.v = rows(total, heads_kv or heads), rows(total, heads_kv or heads)
        self.grad_o = rows(len(lengths) * queries if queries else total, heads)
        self.offsets = offsets_of(lengths, device)
        self.longest = longest or max(lengths)
        if plan:
            self.attention = self.plan()

    def plan(self, deterministic=False):
        packed = None if self.queries else self.offsets
        return jfa_capi.Attention(
            LIBRARY, self.q, self.k, self.v, self.grad_o, self.offsets, self.longest, packed, self.longest, self.window,
            self.bottom_right, deterministic)

    def error(self, o, lengths=None, sample=None):
        """Relative Frobenius error of O against float64; infinite if a row without keys is not 0."""
        lengths = lengths or self.lengths
        starts = [0]
        for length in lengths:
            starts.append(starts[-1] + length)
        distance = norm = 0.0
        for b in sample or range(len(lengths)):
            rows = slice(starts[b], starts[b + 1])
            rows_q = slice(0, self.queries) if self.queries else rows
            rows_o = slice(b * self.queries, (b + 1) * self.queries) if self.queries else rows
            exact = self.exact(self.q[rows_q], self.k[rows], self.v[rows])
            distance += float((o[rows_o].double() - exact).pow(2).sum())
            norm += float(exact.pow(2).sum())
        value = math.sqrt(distance / norm) if norm > 0 else math.sqrt(distance)
        return value if value == value else math.inf

    def exact(self, q, k, v):
        group = q.shape[1] // k.shape[1]
        q, k, v = q.double(), k.double().repeat_interleave(group, 1), v.double().repeat_interleave(group, 1)
        scores = torch.einsum("nhd,mhd->hnm", q, k) / math.sqrt(self.dim)
        n, m = scores.shape[1:]
        diagonal = torch.arange(n, device=q.device)[:, None] + (m - n if self.bottom_right else 0)
        keys = torch.arange(m, device=q.device)[None]
        left, right = self.window
        seen = torch.ones(n, m, dtype=torch.bool, device=q.device)
        seen &= (keys >= diagonal - left) if left >= 0 else seen
        seen &= (keys <= diagonal + right) if right >= 0 else seen
        p = torch.nan_to_num(scores.masked_fill(~seen, -math.inf).softmax(-1)) if m else scores
        return torch.einsum("hnm,mhd->nhd", p, v)


def near(data, o, what="", **options):
    value = data.error(o, **options)
    assert value < TOLERANCE, f"{what} relative error {value:.2e}"
    return value


def poison(attention):
    attention.o.fill_(math.nan)
    attention.lse.fill_(math.nan)


def bits(t):
    return t.view(torch.int16 if t.element_size() == 2 else torch.int32)


def fails(status, call, *words):
    """The text of the error, which must have this status and contain these words."""
    try:
        call()
    except jfa_capi.JfaError as error:
        assert error.status == status, f"status {error.status} instead of {status}: {error}"
        missing = [word for word in words if word not in str(error)]
        assert not missing, f"the message lacks {missing}: {error}"
        return str(error)
    raise AssertionError("the call succeeded")


# Numerics and repeatability.


def forward_of_many_kinds():
    """Head dimensions, windows, GQA, fp16 and lengths of every remainder, against float64."""
    worst, count = 0.0, 0
    kinds = [dict(dim=dim) for dim in (8, 64, 72, 128, 192, 256)]
    kinds += [dict(queries=queries) for queries in (1, 37, 64, 512)]
    kinds += [dict(heads=8, heads_kv=2, dtype=torch.float16)]
    for dim in (64, 128, 256):
        for window in ((-1, 0), (100, 0), (0, 0), (64, 64)):
            kinds += [dict(queries=None, dim=dim, window=window, bottom_right=flag) for flag in (False, True)]
    for kind in kinds:
        data = Data(LENGTHS, **kind)
        data.attention.update()
        data.attention.forward()
        worst, count = max(worst, near(data, data.attention.o, str(kind))), count + 1
        data.attention.close()
    return f"{count} kinds, error at most {worst:.4f}"


def repeatable():
    """20 runs of the forward, planner included, give the same bits."""
    for kind in (dict(queries=256), dict(queries=None, window=(-1, 0)), dict(queries=128, dim=64)):
        data = Data(LENGTHS * 20, **kind)
        attention, first = data.attention, None
        for _ in range(20):
            poison(attention)
            attention.update()
            attention.forward()
            now = bits(attention.o).clone(), bits(attention.lse).clone()
            first = first or now
            assert all(torch.equal(a, b) for a, b in zip(first, now)), f"{kind}: runs differ"
        attention.close()


def deterministic_backward():
    """100 runs of a deterministic backward, planner included, give the same bits, close to those of another plan."""
    kinds = [dict(queries=queries, dim=dim) for queries in (100, 256, 512) for dim in (64, 128)]
    kinds += [dict(queries=200, dim=192, heads=8, heads_kv=2), dict(queries=256, window=(-1, 0))]
    kinds += [dict(queries=None, dim=dim, window=window) for dim in (64, 128, 256) for window in ((-1, 0), (200, 50))]
    for kind in kinds:
        data = Data(LENGTHS * 20, **kind)
        attention, first = data.plan(deterministic=True), None
        for _ in range(100):
            for grad in attention.grads:
                grad.fill_(math.nan)
            attention.update()
            attention.forward()
            now = [bits(grad).clone() for grad in attention.backward()]
            first = first or now
            assert all(torch.equal(a, b) for a, b in zip(first, now)), f"{kind}: runs differ"
        data.attention.update()
        data.attention.forward()
        for name, grad, other in zip(("dQ", "dK", "dV"), attention.grads, data.attention.backward()):
            distance = float((grad.double() - other.double()).norm() / other.double().norm())
            assert distance < TOLERANCE, f"{kind}: {name} differs by {distance:.2e} from the other plan's"
        attention.close()
        data.attention.close()
    return f"{len(kinds)} kinds"


# Streams, graphs, contexts.


def backward_graph_replay():
    """Update, forward and backward are captured once; replays with new offsets give the bits of plain calls."""
    longest, total = 1500, 12000
    for kind in (dict(queries=128), dict(queries=256), dict(queries=None, window=(-1, 0))):
        data = Data(LENGTHS, longest=longest, total=total, **kind)
        captured, plain = data.plan(deterministic=True), data.plan(deterministic=True)
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.graph(graph, stream=stream):
            captured.update()
            captured.forward()
            captured.backward()
        generator = torch.Generator().manual_seed(4)
        for replay in range(4):
            lengths = torch.randint(0, [900, 300, 20, 1][replay], (len(LENGTHS),), generator=generator).tolist()
            data.offsets.copy_(offsets_of(lengths))
            for attention in (captured, plain):
                for grad in attention.grads:
                    grad.zero_()
            graph.replay()
            plain.update()
            plain.forward()
            plain.backward()
            torch.cuda.synchronize()
            for name, a, b in zip(("dQ", "dK", "dV"), captured.grads, plain.grads):
                assert torch.equal(bits(a), bits(b)), f"{kind}, replay {replay}: {name} differs"
        del graph
        captured.close()
        plain.close()
        data.attention.close()


def graph_replay():
    """Update and forward are captured once; replays follow new offsets in the same buffers."""
    longest, total = 1500, 12000
    for kind in (dict(queries=256), dict(queries=None, window=(-1, 0))):
        data = Data(LENGTHS, longest=longest, total=total, **kind)
        attention, stream = data.attention, torch.cuda.Stream()
        graph = torch.cuda.CUDAGraph()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.graph(graph, stream=stream):
            attention.update()
            attention.forward()
        generator = torch.Generator().manual_seed(3)
        for replay in range(6):
            lengths = torch.randint(0, [900, 300, 20][replay % 3], (len(LENGTHS),), generator=generator).tolist()
            if replay == 2:
                lengths = [0] * len(LENGTHS)
            if replay == 5:
                lengths[3], lengths[7] = longest, 0
            assert sum(lengths) <= total
            data.offsets.copy_(offsets_of(lengths))
            poison(attention)
            graph.replay()
            torch.cuda.synchronize()
            near(data, attention.o, f"{kind}, replay {replay}:", lengths=lengths)
        del graph
        attention.close()


def four_streams():
    """Four streams, each with a plan; then one const plan shared by four streams and threads, own outputs each."""
    datas = [Data(LENGTHS * 4, queries=q) for q in (64, 128, 256, 384)]
    streams = [torch.cuda.Stream() for _ in datas]
    torch.cuda.synchronize()
    for _ in range(10):
        for data, stream in zip(datas, streams):
            with torch.cuda.stream(stream):
                data.attention.update()
                data.attention.forward()
    torch.cuda.synchronize()
    for data in datas:
        near(data, data.attention.o)
        data.attention.close()

    data = Data(LENGTHS * 4, queries=256)
    shared = data.attention
    shared.update()
    torch.cuda.synchronize()
    lib, failures, outputs = shared.lib, [], []
    for stream in streams:
        o, lse = torch.full_like(shared.o, math.nan), torch.full_like(shared.lse, math.nan)
        memory = torch.zeros(shared.forward_args.workspace_size + 256, dtype=torch.uint8, device=DEVICE)
        args = jfa_capi.ForwardArgs()
        ctypes.memmove(ctypes.byref(args), ctypes.byref(shared.forward_args), ctypes.sizeof(args))
        args.o, args.lse = jfa_capi.tensor(o), lse.data_ptr()
        args.workspace = -(-memory.data_ptr() // 256) * 256
        outputs.append((args, o, lse, memory, stream))
    torch.cuda.synchronize()

    def work(args, stream):
        for _ in range(20):
            status = lib.jfa_forward(shared.plan, ctypes.byref(args), ctypes.c_void_p(stream.cuda_stream))
            if status:
                failures.append((status, lib.jfa_last_error()))

    threads = [threading.Thread(target=work, args=(args, stream)) for args, _, _, _, stream in outputs]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    torch.cuda.synchronize()
    assert not failures, failures[0]
    near(data, outputs[0][1])
    first_o, first_lse = (bits(t) for t in outputs[0][1:3])
    for _, o, lse, _, _ in outputs[1:]:
        assert torch.equal(bits(o), first_o) and torch.equal(bits(lse), first_lse), "streams differ"
    shared.close()


def special_streams():
    """The legacy stream, as NULL and by its handle, and the stream of a thread."""
    data = Data(LENGTHS)
    attention = data.attention
    for handle in (None, LEGACY_STREAM, PER_THREAD_STREAM):
        poison(attention)
        torch.cuda.synchronize()
        attention.stream = lambda: ctypes.c_void_p(handle)
        attention.update()
        attention.forward()
        torch.cuda.synchronize()
        near(data, attention.o, f"stream {handle}:")
    attention.close()


def cold_thread():
    """A thread that never touched CUDA makes a plan, uses it and ends it, and is left without a context."""
    data = Data(LENGTHS)
    attention = data.attention
    driver, lib, found = ctypes.CDLL("libcuda.so.1"), attention.lib, {}
    torch.cuda.synchronize()
    attention.close()  # its buffers serve the plan of the thread
    attention.stream = lambda: ctypes.c_void_p(LEGACY_STREAM)

    def work():
        context = ctypes.c_void_p()
        try:
            attention.plan = ctypes.c_void_p()
            attention.check(lib.jfa_plan_create(ctypes.byref(attention.desc), ctypes.byref(attention.plan)))
            attention.update()
            attention.check_batch()
            attention.forward()
            attention.close()
            found["status"] = driver.cuCtxGetCurrent(ctypes.byref(context))
            found["context"] = context.value
        except Exception as error:  # shown by the check
            found["error"] = error

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert "error" not in found, found["error"]
    assert found == {"status": 0, "context": None}, f"the thread was left with a context: {found}"
    torch.cuda.synchronize()
    near(data, attention.o)


def foreign_context():
    """With the context of another GPU current, calls work on the plan's GPU and leave the current one alone."""
    if torch.cuda.device_count() < 2:
        raise Skipped("needs two GPUs")
    driver = ctypes.CDLL("libcuda.so.1")
    data = Data(LENGTHS)
    torch.cuda.synchronize()
    with torch.cuda.device(1):
        torch.zeros(1, device="cuda:1")
        before, after = ctypes.c_void_p(), ctypes.c_void_p()
        assert driver.cuCtxGetCurrent(ctypes.byref(before)) == 0
        data.attention.stream = lambda: ctypes.c_void_p(LEGACY_STREAM)
        data.attention.update()
        data.attention.forward()
        data.attention.check_batch()
        assert driver.cuCtxGetCurrent(ctypes.byref(after)) == 0
        assert before.value == after.value, "another context is current"
    torch.cuda.synchronize(0)
    near(data, data.attention.o)
    other = Data(LENGTHS, device="cuda:1")
    with torch.cuda.device(1):
        other.attention.update()
        other.attention.forward()
    torch.cuda.synchronize(1)
    near(other, other.attention.o, "second GPU:")
    data.attention.forward_args.k = jfa_capi.tensor(other.k)
    fails(INVALID_ARGUMENT, data.attention.forward, "k", "device")
    data.attention.close()
    other.attention.close()


def destroyed_in_flight():
    """A plan that is destroyed while its work waits on the stream: the work still counts."""
    for _ in range(5):
        data = Data(LENGTHS * 8, queries=256)
        torch.cuda.synchronize()
        torch.cuda._sleep(20_000_000)
        data.attention.update()
        data.attention.forward()
        data.attention.close()
        # Memory that a plan freed too early would be overwritten by the next one.
        other = Data([3] * 64)
        other.attention.update()
        other.attention.forward()
        torch.cuda.synchronize()
        near(data, data.attention.o)
        other.attention.close()


# Bad input.


def bad_offsets():
    """Offsets that are wrong on the device touch nothing, and jfa_plan_check names the index; the plan recovers."""
    total, longest = sum(LENGTHS), max(LENGTHS)
    for kind in (dict(queries=128), dict(queries=None, window=(-1, 0))):
        data = Data(LENGTHS, longest=longest, **kind)
        attention, good = data.attention, data.offsets.clone()
        prefix = "kv_offsets" if data.queries else "offsets"
        for index, value in ((4, -5), (5, int(good[4]) - 1), (len(LENGTHS), total + 1), (0, -1), (9, 2**31 - 1)):
            data.offsets.copy_(good)
            data.offsets[index] = value
            poison(attention)
            attention.update()
            attention.forward()
            torch.cuda.synchronize()
            assert bool(torch.isnan(attention.o).all() and torch.isnan(attention.lse).all()), f"[{index}] wrote"
            text = fails(INVALID_OFFSETS, attention.check_batch, prefix)
            begun, ended = f"[{index}]", f"[{index - 1}]"
            # A longer last sequence may be what breaks first.
            assert begun in text or ended in text or f"[{index + 1}]" in text, f"index {index}: {text}"
        data.offsets.copy_(good)
        attention.update()
        attention.check_batch()
        attention.forward()
        near(data, attention.o, "after recovery:")
        attention.close()


def host_pointers():
    """Pageable host memory is refused by name, and nothing is enqueued."""
    data = Data(LENGTHS)
    attention = data.attention
    host_offsets = data.offsets.cpu()
    attention.batch.kv_offsets = host_offsets.data_ptr()
    fails(INVALID_ARGUMENT, attention.update, "kv_offsets", "host")
    attention.batch.kv_offsets = data.offsets.data_ptr()
    attention.update()
    for name in ("q", "k", "v", "o"):
        tensor = attention.o if name == "o" else getattr(data, name)
        host = tensor.cpu()
        setattr(attention.forward_args, name, jfa_capi.tensor(host))
        fails(INVALID_ARGUMENT, attention.forward, name, "host")
        setattr(attention.forward_args, name, jfa_capi.tensor(tensor))
    attention.forward()
    near(data, attention.o)
    attention.close()


# The planner.


def planned_tiles(data, details):
    """Tiles and workers that src/schedule gives, from its rules."""
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
    block_m, block_n = details.forward_block_m, details.backward_block_n
    forward = backward = 0
    for length in data.lengths:
        queries = data.queries or length
        left, right = data.window
        for begin in range(0, queries, block_m):
            end = min(begin + block_m, queries)
            first = max(0, begin - left) if left >= 0 else 0
            last = min(length, end + right) if right >= 0 else length
            forward += first < last
        seen = 0
        for begin in range(0, length, block_n):
            end = min(begin + block_n, length)
            first = max(0, begin - right) if right >= 0 else 0
            last = min(queries, end + left) if left >= 0 else queries
            seen += first < last
        backward += -(-seen // details.backward_cluster) * details.backward_cluster
    return forward * data.heads, backward * data.k.shape[1], multiprocessors


def planner():
    """The number of tiles, forward and backward, against a statement of the rules in Python."""
    generator = torch.Generator().manual_seed(11)
    for batch in (1, 17, 300, 3000):
        lengths = torch.randint(0, 700, (batch,), generator=generator).tolist()
        lengths[0] = max(lengths[0], 1)
        for kind in (dict(queries=300), dict(queries=None, window=(-1, 0)), dict(queries=None, window=(50, 20)),
                     dict(queries=128, heads=8, heads_kv=2), dict(queries=200, window=(-1, 0))):
            data = Data(lengths, dim=64, **kind)
            data.attention.update()
            details = data.attention.info()
            forward, backward, multiprocessors = planned_tiles(data, details)
            found = details.forward_tiles, details.backward_tiles
            assert found == (forward, backward), f"B {batch}, {kind}: {found} tiles instead of {(forward, backward)}"
            assert 0 < details.forward_workers <= multiprocessors, f"{details.forward_workers} workers"
            assert details.forward_imbalance >= 1
            data.attention.close()


def largest_batch():
    """2^20 sequences: every row is written, and a sample is right."""
    batch = 1 << 20
    generator = torch.Generator().manual_seed(5)
    lengths = torch.randint(0, 5, (batch,), generator=generator).tolist()
    lengths[batch // 3], lengths[-1] = 1000, 300
    data = Data(lengths, queries=8, heads=1, dim=64)
    attention = data.attention
    attention.update()
    attention.check_batch()
    attention.forward()
    assert not bool(torch.isnan(attention.o).any() or torch.isnan(attention.lse).any()), "rows were left out"
    starts = torch.tensor([0, *lengths]).cumsum(0).tolist()
    for b in [0, 1, 2, batch // 3, batch // 2, batch - 2, batch - 1]:
        rows = slice(starts[b], starts[b + 1])
        exact, o = data.exact(data.q, data.k[rows], data.v[rows]), attention.o[b * 8 : (b + 1) * 8].double()
        assert float((o - exact).norm()) <= TOLERANCE * float(exact.norm()), f"sequence {b}"
    empty = torch.tensor(lengths, device=DEVICE) == 0
    assert not bool(attention.o.view(batch, -1)[empty].any()), "an empty sequence has O other than 0"
    attention.close()


# Programs.


def conformance(program, count):
    """The numeric and bug tables through the C ABI, and random problems."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "conformance.json"
        command = [program, "--library", LIBRARY, "--device", "cuda"]
        command += ["--random", str(count), "--json", str(file)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=560)
        lines = done.stdout.strip().splitlines() or ["no output"]
        [print(f"    {text}", flush=True) for text in lines if "FAILED" in text or "stopped" in text]
        if file.exists():
            RESULTS["conformance"] = json.loads(file.read_text())
    assert done.returncode == 0, lines[-1]
    return lines[-1]


def sanitize(tool):
    """One tool of compute-sanitizer over small shapes, in a process of its own."""
    program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not pathlib.Path(program).exists():
        raise Skipped("no compute-sanitizer")
    command = [program, "--tool", tool, "--error-exitcode", "9", "--target-processes", "all", "--kernel-name",
               "kernel_substring=jfa", "--print-limit", "20", sys.executable, __file__, LIBRARY, "--sanitize-child"]
    if tool == "racecheck":
        # The backward is left out: its threads read statistics that bulk copies bring, and racecheck does not take the
        # mbarrier such a copy completes for an order. cudasim does, and checks both.
        command[3:3] = ["--racecheck-report", "analysis"]
        command[command.index("kernel_substring=jfa")] = "kernel_substring=jfa_sm90_forward"
    # The caching allocator would hide accesses beyond a tensor.
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, env=environment)
    lines = done.stdout.strip().splitlines() or ["no output"]
    if "not supported" in done.stdout:
        raise Skipped("compute-sanitizer does not support this device")
    if done.returncode != 0 or "child is done" not in done.stdout:
        [print(f"    {text}", flush=True) for text in lines[:40]]
        raise AssertionError(f"exit {done.returncode}: {lines[-1]}")
    return next((text.strip("= ") for text in lines if "SUMMARY" in text), "")


def sanitize_child():
    """What runs below compute-sanitizer: small, but with every kind of tile."""
    lengths = [0, 1, 65, 130, 200, 0, 128]
    for kind in (dict(queries=130), dict(queries=None, window=(-1, 0)), dict(queries=64, dim=64),
                 dict(queries=70, heads=4, heads_kv=2, dim=72), dict(queries=None, dim=256, window=(40, 10)),
                 dict(queries=None, dim=128, dtype=torch.float16, window=(-1, 0), bottom_right=True)):
        data = Data(lengths, **{"heads": 2, **kind})
        data.attention.update()
        data.attention.forward()
        ordered = data.plan(deterministic=True)
        ordered.update()
        ordered.forward()
        for grad in [*data.attention.backward(), *ordered.backward()]:
            assert not bool(torch.isnan(grad.cpu()).any()), f"{kind}: NaN in a gradient"
        torch.cuda.synchronize()
        o = data.attention.o.cpu()
        assert not bool(torch.isnan(o).any()), f"{kind}: NaN in O"
        data.attention.close()
        ordered.close()
    print("child is done", flush=True)


CHECKS = (forward_of_many_kinds, repeatable, deterministic_backward, graph_replay, backward_graph_replay, four_streams,
          special_streams, cold_thread, foreign_context, destroyed_in_flight, bad_offsets, host_pointers, planner, largest_batch)
TOOLS = ("memcheck", "racecheck", "synccheck")
RESULTS = {}
LIBRARY = ""


def run(name, check):
    """Runs a check and prints its line; whether the device still works."""
    begin = time.monotonic()
    try:
        outcome, text = "passed", check() or ""
    except Skipped as reason:
        outcome, text = "skipped", str(reason)
    except Exception as failure:  # a check may fail in any way
        outcome, text = "failed", f"{type(failure).__name__}: {failure}".strip()[:500]
        if not isinstance(failure, (AssertionError, jfa_capi.JfaError)):
            traceback.print_exc()
    seconds = time.monotonic() - begin
    print(f"{outcome:7s} {name} ({seconds:.1f} s) {text}".rstrip(), flush=True)
    RESULTS["checks"].append({"name": name, "outcome": outcome, "seconds": round(seconds, 2), "text": text})
    try:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    except RuntimeError as broken:
        print(f"stopped: the device is broken: {broken}", flush=True)
        return False
    return True


def main():
    global LIBRARY
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", help="libjfa.so with CUDA")
    parser.add_argument("--conformance", metavar="PROGRAM", help="jfa-conformance, to be run on the device too")
    parser.add_argument("--random", type=int, default=200, help="random problems of the conformance program")
    parser.add_argument("--json", type=pathlib.Path, help="file for the results")
    parser.add_argument("--commit", default="unknown", help="commit of the library, for the results")
    parser.add_argument("--only", default="", help="run only checks whose name contains this")
    parser.add_argument("--sanitize-child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    LIBRARY = str(pathlib.Path(options.library).resolve())
    if options.sanitize_child:
        return sanitize_child()
    RESULTS.update(gpu=torch.cuda.get_device_name(), commit=options.commit, torch=torch.__version__, checks=[])
    checks = [(check.__name__, check) for check in CHECKS]
    if options.conformance:
        checks.insert(0, ("conformance", lambda: conformance(options.conformance, options.random)))
    checks += [(f"sanitizer_{tool}", lambda tool=tool: sanitize(tool)) for tool in TOOLS]
    stopped = any(not run(name, check) for name, check in checks if options.only in name)
    outcomes = [entry["outcome"] for entry in RESULTS["checks"]]
    count = {word: outcomes.count(word) for word in ("passed", "failed", "skipped")}
    if stopped or not outcomes:
        count["failed"] = max(count["failed"], 1)
    RESULTS.update(count)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(RESULTS, indent=1) + "\n")
    if count["skipped"]:
        print(f"{count['skipped']} skipped")
    print(f"{count['passed']} passed, {count['failed']} failed")
    sys.exit(1 if count["failed"] else 0)


if __name__ == "__main__":
    main()
