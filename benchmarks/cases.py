"""The shapes of the comparison on GPUs, their data, their cost, and the float64 reference."""

import math
import pathlib

import torch

DEVICE = "cuda"
# What the roofline assumes of an H200: the rate of wgmma alone on random data, and of bulk reads from HBM.
TENSOR_TFLOPS, HBM_TBS = 900.0, 4.7
MOVIELENS = pathlib.Path(__file__).resolve().parent.parent / "examples" / "movielens100k_history_lengths.txt"


def uniform(batch, longest, sparsity):
    """Lengths of `batch` sequences: uniform over [0, 2 s longest] for s below 0.5, else over [(2 s - 1) longest,
    longest]; all equal for s = 1. The mean is s * longest."""
    low, high = max(0, int((2 * sparsity - 1) * longest)), min(longest, int(2 * sparsity * longest))
    return torch.randint(low, high + 1, (batch,), generator=torch.Generator().manual_seed(0)).tolist()


class Case:
    """One shape. Broadcast: `queries` dense queries for every sequence; else causal self-attention."""

    def __init__(self, set_name, name, heads, head_dim, lengths, queries=None):
        self.set, self.name, self.heads, self.head_dim = set_name, name, heads, head_dim
        self.lengths, self.queries = lengths, queries

    @property
    def broadcast(self):
        return self.queries is not None

    @property
    def batch(self):
        return len(self.lengths)

    def fill(self):
        """Makes the tensors; `empty` drops them again."""
        self.kv_starts = [0]
        for length in self.lengths:
            self.kv_starts.append(self.kv_starts[-1] + length)
        self.total_kv, self.longest = self.kv_starts[-1], max(self.lengths)
        self.query_lengths = [self.queries] * self.batch if self.broadcast else self.lengths
        self.rows_o = self.batch * self.queries if self.broadcast else self.total_kv
        self.longest_q = self.queries if self.broadcast else self.longest
        self.scale = 1 / math.sqrt(self.head_dim)
        generator = torch.Generator(device=DEVICE).manual_seed(0)

        def rows(count):
            size = (count, self.heads, self.head_dim)
            return torch.randn(size, device=DEVICE, dtype=torch.bfloat16, generator=generator)

        self.q = rows(self.queries if self.broadcast else self.total_kv)
        self.k, self.v, self.grad_o = rows(self.total_kv), rows(self.total_kv), rows(self.rows_o)
        self.kv_offsets = torch.tensor(self.kv_starts, device=DEVICE, dtype=torch.int32)
        if self.broadcast:
            self.q_offsets = torch.arange(self.batch + 1, device=DEVICE, dtype=torch.int32) * self.queries
        else:
            self.q_offsets = self.kv_offsets

    def empty(self):
        del self.q, self.k, self.v, self.grad_o, self.kv_offsets, self.q_offsets

    def expanded_q(self):
        """Q as a peer needs it that cannot share one: copied for every sequence."""
        return self.q.repeat(self.batch, 1, 1) if self.broadcast else self.q

    def sum_grad_q(self, grad_q):
        """dQ in the shape of Q, from that of the copies."""
        return grad_q.view(self.batch, *self.q.shape).sum(0) if self.broadcast else grad_q

    def rows_of_o(self, b):
        begin = b * self.queries if self.broadcast else self.kv_starts[b]
        return slice(begin, begin + self.query_lengths[b])

    def rows_of_kv(self, b):
        return slice(self.kv_starts[b], self.kv_starts[b + 1])

    def flops(self):
        """Of the forward: 4 for each visible (query, key) pair, head and element. The backward has 2.5 times that."""
        if self.broadcast:
            pairs = self.queries * self.total_kv
        else:
            pairs = sum(length * (length + 1) // 2 for length in self.lengths)
        return 4.0 * pairs * self.heads * self.head_dim

    def roofline_ms(self, backward):
        """The larger of the time of the FLOPs and of the fewest bytes: each tensor read or written once. The dense Q
        of a broadcast and its gradient count as nothing."""
        row = self.heads * self.head_dim * 2
        packed_q = 0 if self.broadcast else self.total_kv
        tensors = (packed_q + 2 * self.total_kv) * (2 if backward else 1) + self.rows_o * (2 if backward else 1)
        data = tensors * row + self.rows_o * self.heads * 4
        flops = self.flops() * (2.5 if backward else 1)
        return max(flops / TENSOR_TFLOPS / 1e9, data / HBM_TBS / 1e9)

    def sample(self):
        """Sequences to check: first, middle, last, longest, shortest that is not empty, and an empty one."""
        order = sorted(range(self.batch), key=self.lengths.__getitem__)
        shortest = next(b for b in order if self.lengths[b] > 0)
        return sorted({0, self.batch // 2, self.batch - 1, order[-1], shortest, order[0]})

    def exact(self, b, backward):
        """float64 results of one sequence: o, lse, and with `backward` dq, dk, dv."""
        q = self.q if self.broadcast else self.q[self.rows_of_kv(b)]
        q, k, v = q.double(), self.k[self.rows_of_kv(b)].double(), self.v[self.rows_of_kv(b)].double()
        scores = torch.einsum("nhd,mhd->hnm", q, k) * self.scale
        if not self.broadcast:
            hidden = torch.ones(scores.shape[1:], dtype=torch.bool, device=scores.device).triu_(1)
            scores.masked_fill_(hidden, -math.inf)
        lse = torch.logsumexp(scores, -1)
        p = torch.exp(scores.sub_(lse[..., None])) if k.shape[0] else scores
        o = torch.einsum("hnm,mhd->nhd", p, v)
        if not backward:
            return {"o": o, "lse": lse}
        grad_o = self.grad_o[self.rows_of_o(b)].double()
        grad_p = torch.einsum("nhd,mhd->hnm", grad_o, v)
        grad_s = p * (grad_p - (grad_o * o).sum(-1).T[..., None]) * self.scale
        return {
            "o": o,
            "lse": lse,
            "dq": torch.einsum("hnm,mhd->nhd", grad_s, k),
            "dk": torch.einsum("hnm,nhd->mhd", grad_s, q),
            "dv": torch.einsum("hnm,nhd->mhd", p, grad_o),
        }


def broadcast_cases(set_name, head_dim, queries, longest, sparsities, batch=768, heads=4):
    return [
        Case(set_name, f"B{batch} H{heads} D{head_dim} Nq{n} L{l} s{s}", heads, head_dim, uniform(batch, l, s), n)
        for n in queries
        for l in longest
        for s in sparsities
    ]


def self_cases():
    histories = [int(word) for word in MOVIELENS.read_text().split()] * 4
    cases = []
    for head_dim in (128, 64):
        for name, lengths in (("movielens", histories), ("U(0,4096)", uniform(128, 4096, 0.5))):
            cases.append(Case("self", f"B{len(lengths)} H4 D{head_dim} causal {name}", 4, head_dim, lengths))
    return cases


def all_sets():
    """Name of a set -> its cases."""
    few = (0.1, 0.5, 0.9)
    dense = []
    for n in (512, 1024, 2048, 4096):
        dense += broadcast_cases("dense", 128, (n,), (n,), (1.0,), batch=(1 << 17) // n)
    return {
        "jagged": broadcast_cases("jagged", 128, (128, 256, 512), (1024, 4096), few),
        "d64": broadcast_cases("d64", 64, (128, 512), (4096,), few),
        "dense": dense,
        "nq64": broadcast_cases("nq64", 128, (64,), (1024, 4096), few),
        "self": self_cases(),
    }
