"""The public function."""

import math

import torch

from ._plan import current_plan

_UNBOUNDED = -1


def attention(
    q,
    k,
    v,
    kv_offsets=None,
    *,
    q_offsets=None,
    kv_lengths=None,
    max_seqlen_kv=None,
    max_seqlen_q=None,
    window=None,
    causal=False,
    alignment="top_left",
    scale=None,
    deterministic=False,
    no_gaps=False,
    return_lse=False,
    plan=None,
):
    """softmax(scale * Q K^T + mask) V for every sequence and head of a jagged batch, exactly; differentiable once.

    q: queries. With `q_offsets`, `[total_q, heads_q, head_dim]`, sequence after sequence. Without, one dense
        `[seqlen_q, heads_q, head_dim]` that all sequences share.
    k, v: keys and values, `[total_kv, heads_kv, head_dim]`; `heads_q` is a multiple of `heads_kv`. Each of q, k and v
        is bfloat16 or float16, on the CPU also float32; the last dimension is contiguous. Other strides and addresses
        that are no multiples of 16 bytes cost a copy. Each may be a nested tensor of layout torch.jagged,
        `[batch, j, heads, head_dim]`, which brings its offsets along.
    kv_offsets, q_offsets: `[batch + 1]`, int32 or int64, on the device of q. Sequence b has the rows
        `offsets[b] .. offsets[b + 1]`. Offsets never decrease; the first may be above 0.
    kv_lengths: `[batch]`: only the first `kv_lengths[b]` keys of each sequence are there.
    max_seqlen_kv, max_seqlen_q: upper bounds of the lengths; they save a copy from the GPU. `max_seqlen_q` is needed
        with `q_offsets` alone, and there not if they are the tensor `kv_offsets`. Numbers that stay the same from step
        to step save plans and compilations.
    window: `(left, right)`, keys seen to both sides of the diagonal, inclusive; -1 or None for all.
    causal: no keys to the right of the diagonal.
    alignment: "top_left", query 0 lies on key 0, or "bottom_right", the last query lies on the last key.
    scale: factor of the scores; None for `1 / sqrt(head_dim)`.
    deterministic: the backward gives the same bits in every run. Always so on the CPU, and on everything after
        `torch.use_deterministic_algorithms(True)`.
    no_gaps: promises that the sequences cover every row, which saves clearing results. Rows outside of all sequences
        get zeros, and so do their gradients; with this promise they must not exist.
    return_lse: also return the logarithm of the sum of exp(score), float32, without a gradient: `[heads_q, total_q]`
        or `[batch, heads_q, seqlen_q]`.
    plan: a `Plan` that several calls share; by default the one whose `with` block is open, if any.

    Returns O: of q's shape (and nested if q is), or `[batch, seqlen_q, heads_q, head_dim]` without `q_offsets`. Queries
    that see no key get O = 0 and LSE = -inf. Raises TypeError, ValueError or RuntimeError before anything is launched.
    What the offsets hold is checked on the CPU; on CUDA, where nothing waits for the GPU, wrong ones leave undefined
    results, and `Plan.check` tells.
    """
    check_tensors(q, k, v)
    nested_q = None
    if k.is_nested or v.is_nested or q.is_nested:
        nested_q = q if q.is_nested else None
        q, k, v, kv_offsets, q_offsets, kv_lengths, max_seqlen_q, max_seqlen_kv = _unpack(
            q, k, v, kv_offsets, q_offsets, kv_lengths, max_seqlen_q, max_seqlen_kv
        )
    inputs = operator_inputs(
        q,
        k,
        v,
        kv_offsets,
        q_offsets,
        kv_lengths,
        max_seqlen_kv,
        max_seqlen_q,
        window,
        causal,
        alignment,
        scale,
        deterministic,
        no_gaps,
        plan,
    )
    o, lse = torch.ops.jfa.forward.default(*inputs)
    if nested_q is not None:
        o = torch.nested.nested_tensor_from_jagged(o, nested_q.offsets())
    return (o, lse) if return_lse else o


def check_tensors(q, k, v):
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"jfa: {name}: must be a tensor, but is {type(tensor).__name__}")


def operator_inputs(
    q,
    k,
    v,
    kv_offsets,
    q_offsets,
    kv_lengths,
    max_seqlen_kv,
    max_seqlen_q,
    window=None,
    causal=False,
    alignment="top_left",
    scale=None,
    deterministic=False,
    no_gaps=False,
    plan=None,
):
    """The arguments of the operator `jfa::forward`, from those of `attention`, which are checked."""
    for name, vector in (("kv_offsets", kv_offsets), ("q_offsets", q_offsets), ("kv_lengths", kv_lengths)):
        if vector is None and name != "kv_offsets":
            continue
        if not isinstance(vector, torch.Tensor):
            raise TypeError(f"jfa: {name}: must be a tensor, but is {type(vector).__name__}")
        if vector.requires_grad:
            raise ValueError(f"jfa: {name}: must not require a gradient")
    max_seqlen_kv = _length("max_seqlen_kv", max_seqlen_kv, "an upper bound of the lengths of the key sequences")
    if q_offsets is None:
        max_seqlen_q = 0  # It is the number of rows of q.
    elif max_seqlen_q is None and q_offsets is kv_offsets:
        max_seqlen_q = max_seqlen_kv
    else:
        rule = "with q_offsets, an upper bound of the lengths of the query sequences: they are in the offsets' memory"
        max_seqlen_q = _length("max_seqlen_q", max_seqlen_q, rule)
    left, right = _window(window, causal)
    if alignment not in ("top_left", "bottom_right"):
        raise ValueError(f'jfa: alignment: must be "top_left" or "bottom_right", but is {alignment!r}')
    if scale is not None and not (math.isfinite(scale) and scale != 0):
        raise ValueError(f"jfa: scale: must be finite and not 0, but is {scale}")
    plan = current_plan() if plan is None else plan
    if plan is not None and not torch.compiler.is_compiling():
        plan._refuse_changed()
    return (
        q,
        k,
        v,
        kv_offsets,
        q_offsets,
        kv_lengths,
        max_seqlen_q,
        max_seqlen_kv,
        left,
        right,
        alignment == "bottom_right",
        0.0 if scale is None else float(scale),
        deterministic or torch.are_deterministic_algorithms_enabled(),
        no_gaps,
        0 if plan is None else plan._id,
    )


def _length(name, value, meaning):
    if value is None:
        raise TypeError(f"jfa: {name}: needed: {meaning}")
    if isinstance(value, torch.Tensor):
        raise TypeError(f"jfa: {name}: must be an integer: reading a tensor would wait for the GPU")
    return value


def _window(window, causal):
    sides = (_UNBOUNDED, _UNBOUNDED) if window is None else tuple(window)
    if len(sides) != 2:
        raise ValueError(f"jfa: window: must be (left, right), but is {window!r}")
    left, right = (_UNBOUNDED if side is None else side for side in sides)
    if left < _UNBOUNDED or right < _UNBOUNDED:
        raise ValueError(f"jfa: window: must be 0 or more, or -1 for all keys, but is {window!r}")
    return left, 0 if causal else right


def _unpack(q, k, v, kv_offsets, q_offsets, kv_lengths, max_seqlen_q, max_seqlen_kv):
    """Rows and offsets of jagged nested tensors."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if not tensor.is_nested:
            if name != "q":
                raise ValueError(f"jfa: {name}: must be nested, since {'v' if name == 'k' else 'k or q'} is")
            continue
        if tensor.layout != torch.jagged or tensor._ragged_idx != 1 or tensor.dim() != 4:
            raise ValueError(f"jfa: {name}: a nested tensor must be torch.jagged, (batch, j, heads, head_dim)")
    if kv_offsets is not None or q_offsets is not None or kv_lengths is not None:
        raise ValueError("jfa: kv_offsets: nested tensors bring their offsets along: give none")
    if v.shape[1] != k.shape[1]:
        raise ValueError("jfa: v: must have the sequences of k: make it with k's offsets")
    if q.is_nested and q.lengths() is not None:
        raise ValueError("jfa: q: a nested tensor with lengths is for k and v; use one without")
    kv_offsets, kv_lengths = k.offsets(), k.lengths()
    max_seqlen_kv = k._maybe_max_seqlen if max_seqlen_kv is None else max_seqlen_kv
    if q.is_nested:
        q_offsets = q.offsets()
        max_seqlen_q = q._maybe_max_seqlen if max_seqlen_q is None else max_seqlen_q
        q = q.values()
    return q, k.values(), v.values(), kv_offsets, q_offsets, kv_lengths, max_seqlen_q, max_seqlen_kv
