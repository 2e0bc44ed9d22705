"""What the operators need besides their kernels: shapes without data, gradients, autocast."""

import contextlib

import torch
from torch.autograd import forward_ad

from . import _library  # noqa: F401 (it loads the operators)

_AUTOCAST_KEYS = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA"}


def _check_vector(name, vector, size=None):
    torch._check_value(vector.dim() == 1, lambda: f"jfa: {name}: must be a contiguous vector")
    torch._check_value(
        vector.dtype in (torch.int32, torch.int64),
        lambda: f"jfa: {name}: must be int32 or int64, but is {vector.dtype}",
    )
    if size is not None:
        torch._check_value(
            vector.shape[0] == size,
            lambda: f"jfa: {name}: must have {size} elements to fit kv_offsets, but has {vector.shape[0]}",
        )


def _check_rows(name, tensor, q):
    torch._check_value(
        tensor.dim() == 3,
        lambda: f"jfa: {name}: must have 3 dimensions (rows, heads, head_dim), but has {tensor.dim()}",
    )
    torch._check_value(
        tensor.dtype == q.dtype, lambda: f"jfa: {name}: must be of q's type {q.dtype}, but is {tensor.dtype}"
    )
    torch._check_value(tensor.device == q.device, lambda: f"jfa: {name}: must be on the device of q")


def _check(q, k, v, kv_offsets, q_offsets, kv_lengths):
    """The rules on shapes and types that can be seen without data; the kernels check all of them."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        _check_rows(name, tensor, q)
    torch._check_value(k.shape[2] == q.shape[2], lambda: f"jfa: k: must have q's head_dim {q.shape[2]}")
    torch._check_value(k.shape == v.shape, lambda: "jfa: v: must have the shape of k")
    torch._check_value(
        q.shape[1] % k.shape[1] == 0,
        lambda: f"jfa: q: its {q.shape[1]} heads must be a multiple of the {k.shape[1]} heads of k",
    )
    _check_vector("kv_offsets", kv_offsets)
    if q_offsets is not None:
        _check_vector("q_offsets", q_offsets, kv_offsets.shape[0])
    if kv_lengths is not None:
        _check_vector("kv_lengths", kv_lengths, kv_offsets.shape[0] - 1)


@torch.library.register_fake("jfa::forward")
def _forward_fake(q, k, v, kv_offsets, q_offsets, kv_lengths, *rest):
    _check(q, k, v, kv_offsets, q_offsets, kv_lengths)
    rows, heads, dim = q.shape
    if q_offsets is not None:
        return q.new_empty(rows, heads, dim), q.new_empty(heads, rows, dtype=torch.float32)
    batch = kv_offsets.shape[0] - 1
    return q.new_empty(batch, rows, heads, dim), q.new_empty(batch, heads, rows, dtype=torch.float32)


@torch.library.register_fake("jfa::backward")
def _backward_fake(grad_o, q, k, v, o, lse, *rest):
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _below_autograd(*inputs):
    with torch._C._AutoDispatchBelowAutograd():
        return torch.ops.jfa.forward.default(*inputs)


class _Attention(torch.autograd.Function):
    """The gradients of jfa::forward."""

    @staticmethod
    def forward(ctx, *inputs):
        o, lse = _below_autograd(*inputs)
        q, k, v, kv_offsets, q_offsets, kv_lengths, *options = inputs
        ctx.mark_non_differentiable(lse)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(q, k, v, o, lse, kv_offsets, q_offsets, kv_lengths)
        ctx.options = options
        return o, lse

    @staticmethod
    def backward(ctx, grad_o, _grad_lse):
        grads = (None, None, None)
        if grad_o is not None:
            saved = ctx.saved_tensors  # May run the forward again, which needs autograd.
            # With gradients of gradients wanted, the operator's own rule gets to refuse them.
            with contextlib.nullcontext() if torch.is_grad_enabled() else torch._C._AutoDispatchBelowAutograd():
                grads = torch.ops.jfa.backward.default(grad_o, *saved, *ctx.options)
        return *grads, *[None] * (3 + len(ctx.options))


def _autograd(*inputs):
    # torch.library.register_autograd does about the same, but goes through the operator's schema at every call, which
    # takes more of the host's time than all the rest.
    if forward_ad._current_level >= 0 and any(forward_ad.unpack_dual(t).tangent is not None for t in inputs[:3]):
        raise NotImplementedError("jfa: attention has no forward-mode derivative")
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs[:3]):
        if torch._C._are_functorch_transforms_active():
            raise NotImplementedError("jfa: attention has no gradient under torch.func: use torch.autograd")
        return _Attention.apply(*inputs)
    return _below_autograd(*inputs)


def _refuse_second_derivative(ctx, *grads):
    raise NotImplementedError(
        "jfa: attention has no second derivative: its backward cannot be differentiated (create_graph=True)"
    )


torch.library.register_autograd("jfa::backward", _refuse_second_derivative)


def _autocast(device_type):
    """Attention runs in autocast's type, as torch.nn.functional.scaled_dot_product_attention does."""
    off = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, _AUTOCAST_KEYS[device_type]))

    def forward(q, k, v, *rest):
        dtype = torch.get_autocast_dtype(device_type)
        cast = [t.to(dtype) if t.is_floating_point() and t.dtype != torch.float64 else t for t in (q, k, v)]
        with torch._C._ExcludeDispatchKeyGuard(off):
            return torch.ops.jfa.forward(*cast, *rest)

    return forward


# The registrations last as long as this object.
_fragment = torch.library.Library("jfa", "FRAGMENT")
_fragment.impl("forward", _autograd, "Autograd")
for _device_type, _key in _AUTOCAST_KEYS.items():
    _fragment.impl("forward", _autocast(_device_type), _key)
