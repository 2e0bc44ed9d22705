"""Merging partial results over parts of the keys."""

import torch

from . import _library  # noqa: F401 (it loads the operators)


def combine(outs, lses, dtype=None):
    """Merges what attention to several parts of the keys gave for the same queries, exactly.

    outs: up to 64 outputs of `attention`, `[rows, heads, head_dim]` or `[batch, seqlen_q, heads, head_dim]`: a sequence
        of tensors, or one tensor with the parts in front. bfloat16, float16 or float32.
    lses: their LSEs, float32, `[heads, rows]` or `[batch, heads, seqlen_q]`.
    dtype: type of the merged output; None for that of `outs`. Other types than that need float32 outs.

    Returns O and LSE: `LSE = log(sum(exp(lse)))` and `O = sum(exp(lse - LSE) * out)`, summed in float32. A part whose
    LSE is -inf counts for nothing; where all are, O = 0 and LSE = -inf. There is no gradient, because the LSE of
    `attention` has none: see `attention_sharded` for one that works from the merged LSE.
    """
    outs, lses = _parts("outs", outs), _parts("lses", lses)
    if dtype is None:
        if not outs:
            raise ValueError("jfa: outs: must have at least one part")
        dtype = outs[0].dtype
    return torch.ops.jfa.combine.default(outs, lses, dtype)


def _parts(name, parts):
    parts = list(parts.unbind()) if isinstance(parts, torch.Tensor) else list(parts)
    for index, part in enumerate(parts):
        if not isinstance(part, torch.Tensor):
            raise TypeError(f"jfa: {name}[{index}]: must be a tensor, but is {type(part).__name__}")
    return parts


@torch.library.register_fake("jfa::combine")
def _combine_fake(outs, lses, dtype):
    torch._check_value(len(outs) > 0, lambda: "jfa: outs: must have at least one part")
    torch._check_value(len(lses) == len(outs), lambda: f"jfa: lses: must be as many as outs, {len(outs)}")
    o, lse = outs[0], lses[0]
    return o.new_empty(o.shape, dtype=dtype), lse.new_empty(lse.shape)


def _refuse_gradient(ctx, *grads):
    raise NotImplementedError("jfa: combine has no gradient: use attention_sharded, whose backward has the merged LSE")


torch.library.register_autograd("jfa::combine", _refuse_gradient)
