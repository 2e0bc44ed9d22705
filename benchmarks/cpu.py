"""Compares jfa's CPU backend with PyTorch's scaled_dot_product_attention, in one process, run by run.

Usage: python3 benchmarks/cpu.py LIBJFA [--runs N] [--threads N] [--clock wall|cpu] [--only TEXT]

Needs PyTorch. Times are medians in milliseconds; both sides take turns, so that other load on the machine hits both,
and have the same number of threads. On a machine that others load heavily, `--threads 1 --clock cpu` still compares
the work itself: it counts the processor's time alone. GFLOP/s count the useful work: no padding, no recomputation.
"""

import argparse
import ctypes
import pathlib
import statistics
import sys
import time

import torch
from torch.nn.functional import scaled_dot_product_attention

LENGTHS = pathlib.Path(__file__).resolve().parent.parent / "examples" / "movielens100k_history_lengths.txt"
DTYPES = {torch.bfloat16: 1, torch.float16: 2, torch.float32: 3}
# Seconds after which a comparison stops early, with fewer runs.
PATIENCE = 20
TOLERANCE = {torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float32: 1e-5}
BROADCAST_Q = 1


class Tensor(ctypes.Structure):
    """jfa_tensor and jfa_const_tensor."""

    _fields_ = [("data", ctypes.c_void_p), ("row_stride", ctypes.c_int64), ("head_stride", ctypes.c_int64)]


class PlanDesc(ctypes.Structure):
    """jfa_plan_desc."""

    _fields_ = (
        [("struct_size", ctypes.c_size_t)]
        + [(name, ctypes.c_int32) for name in ("device_type", "device_index", "dtype", "grad_q_dtype", "index_type")]
        + [(name, ctypes.c_int32) for name in ("heads_q", "heads_kv", "head_dim")]
        + [(name, ctypes.c_int32) for name in ("window_left", "window_right", "alignment")]
        + [("scale", ctypes.c_float), ("flags", ctypes.c_uint32), ("max_workers", ctypes.c_int32)]
        + [(name, ctypes.c_int64) for name in ("max_batch", "max_total_q", "max_total_kv")]
        + [(name, ctypes.c_int64) for name in ("max_seqlen_q", "max_seqlen_kv")]
    )


class Batch(ctypes.Structure):
    """jfa_batch."""

    _fields_ = (
        [("struct_size", ctypes.c_size_t)]
        + [(name, ctypes.c_int64) for name in ("batch", "total_q", "total_kv")]
        + [(name, ctypes.c_void_p) for name in ("q_offsets", "kv_offsets", "kv_lengths")]
    )


class ForwardArgs(ctypes.Structure):
    """jfa_forward_args."""

    _fields_ = (
        [("struct_size", ctypes.c_size_t)]
        + [(name, Tensor) for name in ("q", "k", "v", "o")]
        + [("lse", ctypes.c_void_p), ("workspace", ctypes.c_void_p), ("workspace_size", ctypes.c_size_t)]
    )


class BackwardArgs(ctypes.Structure):
    """jfa_backward_args."""

    _fields_ = (
        [("struct_size", ctypes.c_size_t)]
        + [(name, Tensor) for name in ("q", "k", "v", "o", "grad_o")]
        + [("lse", ctypes.c_void_p)]
        + [(name, Tensor) for name in ("grad_q", "grad_k", "grad_v")]
        + [("workspace", ctypes.c_void_p), ("workspace_size", ctypes.c_size_t)]
    )


def tensor(t):
    """A [rows, heads, head_dim] tensor as jfa sees it."""
    return Tensor(t.data_ptr(), t.stride(0), t.stride(1))


class Jfa:
    """Buffers and a plan for one batch."""

    def __init__(self, path, data, threads=0):
        self.lib = ctypes.CDLL(path)
        self.lib.jfa_last_error.restype = ctypes.c_char_p
        self.lib.jfa_plan_destroy.restype = None
        q, kv, broadcast = data.q, data.k, data.broadcast
        longest_q = q.shape[0] if broadcast else max(data.len_q)
        desc = PlanDesc(
            struct_size=ctypes.sizeof(PlanDesc),
            dtype=DTYPES[q.dtype],
            heads_q=q.shape[1],
            heads_kv=kv.shape[1],
            head_dim=q.shape[2],
            window_left=-1,
            window_right=-1,
            flags=BROADCAST_Q if broadcast else 0,
            max_workers=threads,
            max_batch=len(data.len_kv),
            max_total_q=q.shape[0],
            max_total_kv=kv.shape[0],
            max_seqlen_q=longest_q,
            max_seqlen_kv=max(data.len_kv),
        )
        self.plan = ctypes.c_void_p()
        self.check(self.lib.jfa_plan_create(ctypes.byref(desc), ctypes.byref(self.plan)))
        offsets = [torch.tensor([0, *lengths]).cumsum(0).int() for lengths in (data.len_q, data.len_kv)]
        batch = Batch(
            struct_size=ctypes.sizeof(Batch),
            batch=len(data.len_kv),
            total_q=-1,
            total_kv=-1,
            q_offsets=None if broadcast else offsets[0].data_ptr(),
            kv_offsets=offsets[1].data_ptr(),
        )
        self.check(self.lib.jfa_plan_update(self.plan, ctypes.byref(batch), None))
        sizes = ctypes.c_size_t(), ctypes.c_size_t()
        self.check(self.lib.jfa_plan_workspace_size(self.plan, ctypes.byref(sizes[0]), ctypes.byref(sizes[1])))
        self.size = max(size.value for size in sizes)
        self.memory = torch.zeros(self.size + 256, dtype=torch.uint8)
        workspace = -(-self.memory.data_ptr() // 256) * 256
        self.o, self.lse = torch.zeros_like(data.grad_o), torch.zeros(data.grad_o[..., 0].numel())
        self.grads = [torch.zeros_like(t) for t in (data.q, data.k, data.v)]
        inputs = [tensor(t) for t in (data.q, data.k, data.v, self.o)]
        tail = (workspace, self.size)
        self.forward_args = ForwardArgs(ctypes.sizeof(ForwardArgs), *inputs, self.lse.data_ptr(), *tail)
        grads = [tensor(t) for t in self.grads]
        size = ctypes.sizeof(BackwardArgs)
        self.backward_args = BackwardArgs(size, *inputs, tensor(data.grad_o), self.lse.data_ptr(), *grads, *tail)

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.lib.jfa_last_error().decode())

    def forward(self):
        self.check(self.lib.jfa_forward(self.plan, ctypes.byref(self.forward_args), None))
        return [self.o]

    def both(self):
        self.forward()
        self.check(self.lib.jfa_backward(self.plan, ctypes.byref(self.backward_args), None))
        return [self.o, *self.grads]

    def close(self):
        self.lib.jfa_plan_destroy(self.plan)


class Data:
    """Inputs of one case: rows x heads x head_dim."""

    def __init__(self, len_q, len_kv, heads, dim, dtype, broadcast=None):
        generator = torch.Generator().manual_seed(1)
        rows = lambda count: torch.randn(count, heads, dim, generator=generator).to(dtype)
        self.len_q, self.len_kv, self.broadcast = len_q, len_kv, broadcast is not None
        self.q = rows(broadcast or sum(len_q))
        self.k, self.v = rows(sum(len_kv)), rows(sum(len_kv))
        self.grad_o = rows(broadcast * len(len_kv) if broadcast else sum(len_q))
        queries = [broadcast] * len(len_kv) if broadcast else len_q
        self.flops = 4 * heads * dim * sum(a * b for a, b in zip(queries, len_kv))

    def heads_first(self, t):
        return t.transpose(0, 1).unsqueeze(0)


class Loop:
    """PyTorch, one call per sequence, on the same packed memory."""

    def __init__(self, data):
        self.data = data
        self.q = data.heads_first(data.q).requires_grad_()
        split = lambda t, lengths: [data.heads_first(part).detach() for part in t.split(lengths)]
        self.k = [t.requires_grad_() for t in split(data.k, data.len_kv)]
        self.v = [t.requires_grad_() for t in split(data.v, data.len_kv)]
        self.grad_o = split(data.grad_o, [data.q.shape[0]] * len(data.len_kv))

    def forward(self):
        with torch.no_grad():
            parts = [scaled_dot_product_attention(self.q, k, v) for k, v in zip(self.k, self.v)]
        return [parts]

    def both(self):
        grad_q, parts = torch.zeros_like(self.q, dtype=torch.float32), []
        for k, v, grad_o in zip(self.k, self.v, self.grad_o):
            o = scaled_dot_product_attention(self.q, k, v)
            dq, dk, dv = torch.autograd.grad(o, (self.q, k, v), grad_o)
            grad_q += dq
            parts.append((o.detach(), dk, dv))
        o, dk, dv = zip(*parts)
        return [o, [grad_q], dk, dv]

    @staticmethod
    def rows(parts):
        return torch.cat([part.squeeze(0).transpose(0, 1) for part in parts])


class Padded:
    """PyTorch, one call on sequences padded to the longest, with a mask."""

    def __init__(self, data):
        self.data, longest = data, max(data.len_kv)
        pad = lambda t: torch.nn.utils.rnn.pad_sequence(t.split(data.len_kv), batch_first=True).transpose(1, 2)
        self.k, self.v = pad(data.k).requires_grad_(), pad(data.v).requires_grad_()
        lengths = torch.tensor(data.len_kv)
        self.used = torch.arange(longest)[None, :] < lengths[:, None]
        self.q = data.heads_first(data.q).requires_grad_()
        self.grad_o = data.grad_o.view(len(data.len_kv), *data.q.shape).transpose(1, 2)
        self.mask = self.used[:, None, None, :]

    def attention(self):
        q = self.q.expand(len(self.data.len_kv), -1, -1, -1)
        return scaled_dot_product_attention(q, self.k, self.v, attn_mask=self.mask)

    def forward(self):
        with torch.no_grad():
            return [self.attention()]

    def both(self):
        o = self.attention()
        return [o.detach(), *torch.autograd.grad(o, (self.q, self.k, self.v), self.grad_o)]

    def rows(self, t):
        if t.shape[0] == 1:
            return t.squeeze(0).transpose(0, 1)
        t = t.transpose(1, 2)
        return t[self.used] if t.shape[1] == self.used.shape[1] else t.flatten(0, 1)


class Dense:
    """PyTorch on equal lengths."""

    def __init__(self, data):
        batched = lambda t: t.view(len(data.len_kv), -1, *t.shape[1:]).transpose(1, 2)
        self.q, self.k, self.v = (batched(t).detach().requires_grad_() for t in (data.q, data.k, data.v))
        self.grad_o = batched(data.grad_o)

    def forward(self):
        with torch.no_grad():
            return [scaled_dot_product_attention(self.q, self.k, self.v)]

    def both(self):
        o = scaled_dot_product_attention(self.q, self.k, self.v)
        return [o.detach(), *torch.autograd.grad(o, (self.q, self.k, self.v), self.grad_o)]

    @staticmethod
    def rows(t):
        return t.transpose(1, 2).flatten(0, 1)


def compare(name, ours, theirs, dtype):
    """Relative Frobenius error of every result, which must be small."""
    for what, a, b in zip(("O", "dQ", "dK", "dV"), ours, theirs):
        error = ((a.double() - b.double()).norm() / b.double().norm()).item()
        # A sum over the batch that PyTorch keeps in bf16 is the coarser side.
        if not error < 4 * TOLERANCE[dtype]:
            sys.exit(f"{name}: {what} differs from PyTorch's by {error:.1e}")


def timed(function, clock):
    begin = clock()
    result = function()
    return clock() - begin, result


def run(path, name, data, peers, runs, clock):
    """Prints a line per phase and peer."""
    jfa = Jfa(path, data, torch.get_num_threads())
    dtype = str(data.q.dtype).removeprefix("torch.")
    for phase, flops in (("forward", data.flops), ("both", 3.5 * data.flops)):
        for peer_name, peer in peers.items():
            times = [], []
            for i in range(runs + 1):
                seconds_theirs, theirs = timed(getattr(peer, phase), clock)
                seconds_ours, ours = timed(getattr(jfa, phase), clock)
                if i == 0:
                    compare(f"{name} {peer_name}", ours, [peer.rows(t) for t in theirs], data.q.dtype)
                else:
                    times[0].append(seconds_ours)
                    times[1].append(seconds_theirs)
                del theirs
                if sum(times[0] + times[1]) > PATIENCE:
                    break
            ours, theirs = (statistics.median(t) for t in times)
            print(
                f"| {name} | {dtype} | {'forward' if phase == 'forward' else 'forward + backward'} | {ours * 1e3:.1f}"
                f" | {flops / ours / 1e9:.0f} | {peer_name} | {theirs * 1e3:.1f} | {flops / theirs / 1e9:.0f}"
                f" | {theirs / ours:.2f} |",
                flush=True,
            )
    jfa.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", nargs="?", help="libjfa.so")
    parser.add_argument("--library", help="libjfa.so")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, help="of both sides; default: PyTorch's")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--only", default="", help="run the cases whose name contains this")
    options = parser.parse_args()
    path = options.library or options.path
    if path is None:
        parser.error("the path of libjfa.so is missing")
    clock = time.process_time if options.clock == "cpu" else time.perf_counter
    if options.threads:
        torch.set_num_threads(options.threads)
    lengths = [int(line) for line in LENGTHS.read_text().split() if line.isdigit()]
    threads = torch.get_num_threads()
    print(f"PyTorch {torch.__version__}, {options.clock} time, threads: {threads}, runs: {options.runs}\n")
    print("| case | dtype | phase | jfa, ms | GFLOP/s | PyTorch | ms | GFLOP/s | PyTorch's time over jfa's |")
    print("|---|---|---|---|---|---|---|---|---|")
    for dtype in (torch.float32, torch.bfloat16):
        name = "MovieLens, 64 queries, 4 heads, D 64"
        if options.only in name:
            data = Data([], lengths, 4, 64, dtype, broadcast=64)
            run(path, name, data, {"loop": Loop(data), "padded": Padded(data)}, options.runs, clock)
        for batch, length in ((8, 512), (2, 2048)):
            for dim in (64, 128):
                name = f"dense {batch} x {length}, 4 heads, D {dim}"
                if options.only in name:
                    data = Data([length] * batch, [length] * batch, 4, dim, dtype)
                    run(path, name, data, {"dense": Dense(data)}, options.runs, clock)


if __name__ == "__main__":
    main()
