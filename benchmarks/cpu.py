"""Compares jfa's CPU backend with PyTorch's scaled_dot_product_attention, in one process, run by run.

Usage: python3 benchmarks/cpu.py LIBJFA [--runs N] [--threads N] [--clock wall|cpu] [--only TEXT]

Needs PyTorch. Times are medians in milliseconds; both sides take turns, so that other load on the machine hits both,
and have the same number of threads. On a machine that others load heavily, `--threads 1 --clock cpu` still compares
the work itself: it counts the processor's time alone. GFLOP/s count the useful work: no padding, no recomputation.
"""

import argparse
import pathlib
import statistics
import sys
import time

import torch
from torch.nn.functional import scaled_dot_product_attention

import jfa_capi

LENGTHS = pathlib.Path(__file__).resolve().parent.parent / "examples" / "movielens100k_history_lengths.txt"
# Seconds after which a comparison stops early, with fewer runs.
PATIENCE = 20
TOLERANCE = {torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float32: 1e-5}


class Jfa:
    """jfa with a plan and buffers for one batch."""

    def __init__(self, path, data, threads=0):
        offsets = [torch.tensor([0, *lengths]).cumsum(0).int() for lengths in (data.len_q, data.len_kv)]
        packed = {} if data.broadcast else dict(q_offsets=offsets[0], max_q=max(data.len_q))
        self.attention = jfa_capi.Attention(
            path, data.q, data.k, data.v, data.grad_o, offsets[1], max(data.len_kv), max_workers=threads, **packed)
        self.attention.update()

    def forward(self):
        return [self.attention.forward()]

    def both(self):
        return [self.attention.forward(), *self.attention.backward()]

    def close(self):
        self.attention.close()


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
