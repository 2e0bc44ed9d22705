"""Attention in float64, sequence by sequence, and batches to try it on."""

import dataclasses

import torch

# Relative Frobenius errors that rounding alone explains, for O and the gradients.
TOLERANCE = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 6e-3}


def dtypes(device):
    return [torch.bfloat16, torch.float16] + ([torch.float32] if device == "cpu" else [])


def visible(len_q, len_kv, window=None, causal=False, alignment="top_left"):
    """Which query sees which key, `[len_q, len_kv]`."""
    left, right = (-1 if side is None else side for side in (window or (-1, -1)))
    right = 0 if causal else right
    diagonal = torch.arange(len_q)[:, None] + (len_kv - len_q if alignment == "bottom_right" else 0)
    distance = torch.arange(len_kv)[None, :] - diagonal
    seen = torch.ones(len_q, len_kv, dtype=torch.bool)
    if left >= 0:
        seen &= distance >= -left
    if right >= 0:
        seen &= distance <= right
    return seen


def one_sequence(q, k, v, scale=None, **mask):
    """O `[len_q, heads_q, dim]` and LSE `[heads_q, len_q]` of one sequence, in the inputs' type."""
    group = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(group, dim=1) for t in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q, k) * (q.shape[2] ** -0.5 if scale is None else scale)
    seen = visible(q.shape[0], k.shape[0], **mask).to(q.device)
    scores = scores.masked_fill(~seen, -torch.inf)
    empty = ~seen.any(1)
    lse = scores.logsumexp(-1) if k.shape[0] else scores.new_full(scores.shape[:2], -torch.inf)
    # Rows without keys: any finite number in the place of -inf, and no weight.
    weights = torch.exp(scores - lse.masked_fill(empty, 0)[..., None]).masked_fill(empty[:, None], 0)
    return torch.einsum("hqk,khd->qhd", weights, v), lse.detach()


@dataclasses.dataclass
class Batch:
    """A jagged batch: `len_q` is a number for broadcast Q, or a list."""

    len_kv: list
    len_q: object = 4
    heads_q: int = 2
    heads_kv: int = 2
    dim: int = 64
    dtype: torch.dtype = torch.float32
    device: str = "cpu"
    index_type: torch.dtype = torch.int32

    def __post_init__(self):
        rows = lambda count, heads: torch.randn(count, heads, self.dim).to(self.device, self.dtype).requires_grad_()
        self.broadcast = isinstance(self.len_q, int)
        self.q = rows(self.len_q if self.broadcast else sum(self.len_q), self.heads_q)
        self.k, self.v = rows(sum(self.len_kv), self.heads_kv), rows(sum(self.len_kv), self.heads_kv)
        offsets = lambda lengths: torch.tensor([0, *lengths]).cumsum(0).to(self.device, self.index_type)
        self.kv_offsets = offsets(self.len_kv)
        self.q_offsets = None if self.broadcast else offsets(self.len_q)

    @property
    def inputs(self):
        return self.q, self.k, self.v

    @property
    def options(self):
        """Keyword arguments of jfa.attention that name the sequences."""
        options = dict(max_seqlen_kv=max([1, *self.len_kv]))
        if not self.broadcast:
            options |= dict(q_offsets=self.q_offsets, max_seqlen_q=max([1, *self.len_q]))
        return options

    def reference(self, grad_o, **options):
        """O, LSE, dQ, dK, dV in float64."""
        q, k, v = (t.detach().double().requires_grad_() for t in self.inputs)
        queries = [q] * len(self.len_kv) if self.broadcast else q.split(self.len_q)
        parts = [one_sequence(*p, **options) for p in zip(queries, k.split(self.len_kv), v.split(self.len_kv))]
        join = torch.stack if self.broadcast else torch.cat
        o = join([part[0] for part in parts])
        lse = join([part[1] for part in parts], *([] if self.broadcast else [-1]))
        grads = torch.autograd.grad(o, (q, k, v), grad_o.double(), materialize_grads=True)
        return o.detach(), lse, *grads


def error(value, wanted):
    """Norm of the difference over the norm of what is wanted; 0 and inf as they should be."""
    norm = wanted.double().norm().item()
    difference = (value.double() - wanted.double()).norm().item()
    return difference / norm if norm > 0 else difference


def compare(batch, call, tolerance=None, **options):
    """Checks O, LSE and the gradients of `call(q, k, v)`, which returns O and LSE, against float64."""
    o, lse = call(*batch.inputs)
    grad_o = torch.randn_like(o)
    grads = torch.autograd.grad(o, batch.inputs, grad_o)
    wanted = batch.reference(grad_o, **options)
    assert torch.equal(lse.isinf(), wanted[1].isinf()), "rows without keys"
    finite = ~lse.isinf()
    # The LSE is float32 whatever the inputs are, but its scores are sums of products of theirs.
    assert error(lse[finite], wanted[1][finite]) < 1e-4
    tolerance = TOLERANCE[batch.dtype] if tolerance is None else tolerance
    for name, value, reference in zip(("O", "dQ", "dK", "dV"), (o, *grads), (wanted[0], *wanted[2:])):
        assert value.shape == reference.shape and value.dtype == batch.dtype
        assert error(value, reference) < tolerance, name
