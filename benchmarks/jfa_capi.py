"""jfa's C ABI for Python: the structs of jfa.h and one operator over PyTorch tensors."""

import ctypes

import torch

DTYPES = {torch.bfloat16: 1, torch.float16: 2, torch.float32: 3}
BROADCAST_Q, DETERMINISTIC = 1, 2
ACCUMULATE_GRAD_Q, ACCUMULATE_GRAD_K, ACCUMULATE_GRAD_V = 1, 2, 4


class Tensor(ctypes.Structure):
    """jfa_tensor and jfa_const_tensor."""

    _fields_ = [("data", ctypes.c_void_p), ("row_stride", ctypes.c_int64), ("head_stride", ctypes.c_int64)]


class Sized(ctypes.Structure):
    """A struct that begins with its size."""

    def __init__(self, **fields):
        super().__init__(struct_size=ctypes.sizeof(self), **fields)


class PlanDesc(Sized):
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


class Batch(Sized):
    """jfa_batch."""

    _fields_ = (
        [("struct_size", ctypes.c_size_t)]
        + [(name, ctypes.c_int64) for name in ("batch", "total_q", "total_kv")]
        + [(name, ctypes.c_void_p) for name in ("q_offsets", "kv_offsets", "kv_lengths")]
    )


class ForwardArgs(Sized):
    """jfa_forward_args."""

    _fields_ = (
        [("struct_size", ctypes.c_size_t)]
        + [(name, Tensor) for name in ("q", "k", "v", "o")]
        + [("lse", ctypes.c_void_p), ("workspace", ctypes.c_void_p), ("workspace_size", ctypes.c_size_t)]
    )


class BackwardArgs(Sized):
    """jfa_backward_args."""

    _fields_ = (
        [("struct_size", ctypes.c_size_t)]
        + [(name, Tensor) for name in ("q", "k", "v", "o", "grad_o")]
        + [("lse", ctypes.c_void_p)]
        + [(name, Tensor) for name in ("grad_q", "grad_k", "grad_v")]
        + [("workspace", ctypes.c_void_p), ("workspace_size", ctypes.c_size_t)]
        + [("accumulate", ctypes.c_uint32), ("reserved", ctypes.c_uint32)]
    )


class PlanDetails(Sized):
    """jfa_plan_details."""

    _fields_ = (
        [("struct_size", ctypes.c_size_t), ("arch", ctypes.c_char * 32)]
        + [(name, ctypes.c_char * 64) for name in ("forward_kernel", "backward_kernel")]
        + [(name, ctypes.c_uint32) for name in ("forward_workers", "backward_workers")]
        + [(name, ctypes.c_uint32) for name in ("forward_cluster", "backward_cluster")]
        + [(name, ctypes.c_int32) for name in ("forward_scheduler", "backward_scheduler")]
        + [(name, ctypes.c_int64) for name in ("forward_block_m", "forward_block_n")]
        + [(name, ctypes.c_int64) for name in ("backward_block_m", "backward_block_n")]
        + [(name, ctypes.c_uint64) for name in ("forward_tiles", "backward_tiles")]
        + [(name, ctypes.c_double) for name in ("forward_imbalance", "backward_imbalance")]
    )


class JfaError(RuntimeError):
    """A call that failed: its jfa_status, and what jfa_last_error() says."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


def tensor(t):
    """A [rows, heads, head_dim] tensor as jfa sees it."""
    return Tensor(t.data_ptr(), t.stride(0), t.stride(1))


class Attention:
    """A plan with its buffers for one batch: q and grad_o decide, with `broadcast`, what is packed how.

    q: [seqlen_q, heads_q, head_dim] if broadcast, else [total_q, heads_q, head_dim]; k, v: [total_kv, heads_kv,
    head_dim]; grad_o: [rows of O, heads_q, head_dim]. Offsets are int32 or int64 tensors on the device of q.
    """

    def __init__(self, library, q, k, v, grad_o, kv_offsets, max_kv, q_offsets=None, max_q=None, window=(-1, -1),
                 bottom_right=False, deterministic=False, max_workers=0):
        self.lib = ctypes.CDLL(library)
        self.lib.jfa_last_error.restype = ctypes.c_char_p
        self.lib.jfa_plan_destroy.restype = None
        broadcast, cuda = q_offsets is None, q.is_cuda
        self.desc = PlanDesc(
            device_type=int(cuda), device_index=q.device.index or 0 if cuda else 0, dtype=DTYPES[q.dtype],
            index_type=int(kv_offsets.dtype == torch.int64), heads_q=q.shape[1], heads_kv=k.shape[1],
            head_dim=q.shape[2], window_left=window[0], window_right=window[1], alignment=int(bottom_right),
            flags=BROADCAST_Q * broadcast + DETERMINISTIC * deterministic, max_batch=kv_offsets.numel() - 1,
            max_total_q=q.shape[0], max_total_kv=k.shape[0], max_seqlen_q=q.shape[0] if broadcast else max_q,
            max_seqlen_kv=max_kv, max_workers=max_workers)
        self.plan = ctypes.c_void_p()
        self.check(self.lib.jfa_plan_create(ctypes.byref(self.desc), ctypes.byref(self.plan)))
        self.batch = Batch(
            batch=kv_offsets.numel() - 1, total_q=-1, total_kv=-1, kv_offsets=kv_offsets.data_ptr(),
            q_offsets=None if broadcast else q_offsets.data_ptr())
        sizes = ctypes.c_size_t(), ctypes.c_size_t()
        self.check(self.lib.jfa_plan_workspace_size(self.plan, *map(ctypes.byref, sizes)))
        size = max(size.value for size in sizes)
        memory = torch.zeros(size + 256, dtype=torch.uint8, device=q.device)
        scratch = dict(workspace=-(-memory.data_ptr() // 256) * 256, workspace_size=size)
        self.o = torch.full_like(grad_o, float("nan"))
        self.lse = torch.full((grad_o[..., 0].numel(),), float("nan"), dtype=torch.float32, device=q.device)
        self.grads = [torch.full_like(t, float("nan")) for t in (q, k, v)]
        inputs = dict(q=tensor(q), k=tensor(k), v=tensor(v), o=tensor(self.o), lse=self.lse.data_ptr(), **scratch)
        self.forward_args = ForwardArgs(**inputs)
        names = ("grad_q", "grad_k", "grad_v")
        grads = {name: tensor(t) for name, t in zip(names, self.grads)}
        self.backward_args = BackwardArgs(**inputs, **grads, grad_o=tensor(grad_o))
        self.keep = (memory, q, k, v, grad_o, kv_offsets, q_offsets)

    def check(self, status):
        if status != 0:
            raise JfaError(status, self.lib.jfa_last_error().decode())

    def stream(self):
        return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream if self.o.is_cuda else None)

    def update(self):
        self.check(self.lib.jfa_plan_update(self.plan, ctypes.byref(self.batch), self.stream()))

    def check_batch(self):
        self.check(self.lib.jfa_plan_check(self.plan))

    def info(self):
        details = PlanDetails()
        self.check(self.lib.jfa_plan_info(self.plan, ctypes.byref(details)))
        return details

    def forward(self):
        self.check(self.lib.jfa_forward(self.plan, ctypes.byref(self.forward_args), self.stream()))
        return self.o

    def backward(self):
        self.check(self.lib.jfa_backward(self.plan, ctypes.byref(self.backward_args), self.stream()))
        return self.grads

    def close(self):
        """Ends the plan; the buffers stay."""
        self.lib.jfa_plan_destroy(self.plan)
        self.plan = None
