"""Exact attention over jagged batches: sequences of different lengths, without padding.

    o = jfa.attention(q, k, v, kv_offsets, max_seqlen_kv=4096)

`attention` says what it computes, `Plan` spares the layers of a model repeated planning, `balance` deals sequences to
ranks. Keys may be spread over calls, whose results `combine` merges, or over ranks, with `attention_sharded`. The
operators are `torch.ops.jfa.forward`, `backward` and `combine`.
"""

from . import _flops, _ops  # noqa: F401 (they register)
from ._attention import attention
from ._balance import balance
from ._combine import combine
from ._library import __version__
from ._plan import Plan
from ._sharded import attention_sharded

__all__ = ["Plan", "__version__", "attention", "attention_sharded", "balance", "combine"]
