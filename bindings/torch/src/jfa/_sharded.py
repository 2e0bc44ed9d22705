"""Attention whose keys are spread over the ranks of a process group."""

import torch
import torch.distributed as dist

from ._attention import check_tensors, operator_inputs


def attention_sharded(
    q,
    k,
    v,
    kv_offsets,
    *,
    group=None,
    q_offsets=None,
    kv_lengths=None,
    max_seqlen_kv=None,
    max_seqlen_q=None,
    scale=None,
    deterministic=False,
    no_gaps=False,
    return_lse=False,
    plan=None,
):
    """`attention` over keys that are spread over the ranks of `group`: each rank gives its part of every sequence.

    q: the same on every rank, packed with `q_offsets` or shared by all sequences.
    k, v, kv_offsets, kv_lengths, max_seqlen_kv: this rank's keys. Every rank has all sequences, though some may be
        empty there. Which key lies where does not matter: there are no windows and no causal masks.
    group: a process group of at most 64 ranks; None for the default one.

    Returns O (and LSE) of all keys, the same on every rank. The others are arguments of `attention`.

    Every rank must call with the same shapes of q, and in the backward give the same gradient of O: the ranks compute
    one loss together, each the whole of it. The gradients of k and v are those of the rank's own keys, that of q is the
    whole one on every rank. O, LSE and, in float32, the gradient of q are exchanged, never keys or values.
    """
    check_tensors(q, k, v)
    if q.is_nested or k.is_nested or v.is_nested:
        raise ValueError("jfa: q, k, v: nested tensors are for jfa.attention: give their values and offsets")
    if not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError("jfa: group: torch.distributed.init_process_group comes first")
    if torch.is_autocast_enabled(q.device.type):
        # Here already, since the backward needs what the forward has seen.
        q, k, v = (tensor.to(torch.get_autocast_dtype(q.device.type)) for tensor in (q, k, v))
    inputs = operator_inputs(
        q,
        k,
        v,
        kv_offsets,
        q_offsets,
        kv_lengths,
        max_seqlen_kv,
        max_seqlen_q,
        scale=scale,
        deterministic=deterministic,
        no_gaps=no_gaps,
        plan=plan,
    )
    o, lse = _Sharded.apply(group, *inputs)
    return (o, lse) if return_lse else o


class _Sharded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, *inputs):
        o, lse = torch.ops.jfa.forward.default(*inputs)
        o, lse = torch.ops.jfa.combine.default(_gather(o, group), _gather(lse, group), o.dtype)
        q, k, v, kv_offsets, q_offsets, kv_lengths, *options = inputs
        ctx.mark_non_differentiable(lse)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(q, k, v, o, lse, kv_offsets, q_offsets, kv_lengths)
        ctx.group, ctx.options = group, options
        return o, lse

    @staticmethod
    def backward(ctx, grad_o, _grad_lse):
        if torch.is_grad_enabled():
            raise NotImplementedError("jfa: attention_sharded has no second derivative (create_graph=True)")
        grad_q = grad_k = grad_v = None
        if grad_o is not None:
            # With the merged LSE, the probabilities of this rank's keys are those of the whole softmax.
            grad_q, grad_k, grad_v = torch.ops.jfa.backward.default(grad_o, *ctx.saved_tensors, *ctx.options)
            total = grad_q.float()
            dist.all_reduce(total, group=ctx.group)
            grad_q = total.to(grad_q.dtype)
        return None, grad_q, grad_k, grad_v, *[None] * (3 + len(ctx.options))


def _gather(tensor, group):
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, tensor, group=group)
    return parts
