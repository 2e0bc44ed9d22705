"""Formulas for torch.utils.flop_counter."""

import torch
from torch._subclasses.fake_tensor import is_fake
from torch.utils.flop_counter import register_flop_formula

from . import _library  # noqa: F401 (it loads the operators)


def _lengths(offsets, lengths, rows, longest):
    """Lengths of the sequences; without data, the most that they can be."""
    vector = offsets if lengths is None else lengths
    if is_fake(vector) or vector.device.type == "meta":
        count = offsets.shape[0] - 1
        return [min(rows / count, longest)] * count if count else []
    return (offsets.diff() if lengths is None else lengths).tolist()


def _products(q, k, kv_offsets, q_offsets, kv_lengths, max_seqlen_q, max_seqlen_kv):
    """Multiplications and additions of one product of scores: 2 for each query, key and element.

    Masks are not considered, as in PyTorch's formulas for attention.
    """
    rows, heads, dim = q.shape
    len_kv = _lengths(kv_offsets, kv_lengths, k.shape[0], max_seqlen_kv)
    len_q = [rows] * len(len_kv) if q_offsets is None else _lengths(q_offsets, None, rows, max_seqlen_q)
    return int(2 * heads * dim * sum(a * b for a, b in zip(len_q, len_kv)))


@register_flop_formula(torch.ops.jfa.forward, get_raw=True)
def _forward_flops(q, k, v, kv_offsets, q_offsets, kv_lengths, max_seqlen_q, max_seqlen_kv, *rest, out_val, **kwargs):
    return 2 * _products(q, k, kv_offsets, q_offsets, kv_lengths, max_seqlen_q, max_seqlen_kv)


@register_flop_formula(torch.ops.jfa.backward, get_raw=True)
def _backward_flops(
    grad_o, q, k, v, o, lse, kv_offsets, q_offsets, kv_lengths, max_seqlen_q, max_seqlen_kv, *rest, out_val, **kwargs
):
    return 5 * _products(q, k, kv_offsets, q_offsets, kv_lengths, max_seqlen_q, max_seqlen_kv)
