"""Plans that the layers of a model share."""

import threading
import weakref

import torch

from . import _library  # noqa: F401 (it loads the operators)

# The plan whose `with` block the thread is in.
_thread = threading.local()


def current_plan():
    """The plan whose `with` block this thread is in, or None."""
    return getattr(_thread, "plan", None)


class Plan:
    """One planning for all layers of a model, forward and backward.

    Without a plan, every call of `attention` lists its tiles anew. With one, the first call after `update` does, and
    all others on the same sequences and of the same kind (types, heads, mask, stream) use its list:

        plan = jfa.Plan()
        for kv_offsets, ... in batches:
            plan.update(kv_offsets)
            with plan:                      # or attention(..., plan=plan)
                loss = model(...)
            loss.backward()

    A call with other sequences than those of `update` is right too; it lists tiles of its own. Other batches may be
    under way: the backward of an earlier batch lists its tiles again. A CUDA graph that was captured with a plan needs
    the plan as long as it lives. The plan's memory is freed with the object.
    """

    def __init__(self):
        self._id = torch.ops.jfa.plan_new()
        self._sequences = ()
        self._previous = []
        # Not at exit: the driver may be gone by then, and frees the memory anyway.
        weakref.finalize(self, torch.ops.jfa.plan_delete, self._id).atexit = False

    @torch.compiler.disable(reason="a plan is updated outside of compiled functions")
    def update(self, kv_offsets, *, q_offsets=None, kv_lengths=None):
        """Begins a new batch: call it whenever the offsets are new or have changed in place.

        kv_offsets, q_offsets, kv_lengths: the tensors that the calls of `attention` will get; kept until the next
        update. Nothing is launched yet. Returns the plan.
        """
        torch.ops.jfa.plan_update(self._id, kv_offsets, q_offsets, kv_lengths)
        given = (("kv_offsets", kv_offsets), ("q_offsets", q_offsets), ("kv_lengths", kv_lengths))
        self._sequences = tuple((name, t, t._version) for name, t in given if t is not None and not t.is_inference())
        return self

    def check(self):
        """Raises ValueError if the offsets of the last batch break a rule. Synchronises with the GPU.

        On the CPU, the call of `attention` itself fails; on CUDA it reads and writes nothing out of range, and its
        results are undefined.
        """
        torch.ops.jfa.plan_check(self._id)

    def _refuse_changed(self):
        for name, tensor, version in self._sequences:
            if tensor._version != version:
                raise RuntimeError(f"jfa: {name}: changed in place since plan.update(): call it again")

    def __reduce__(self):
        return Plan, ()  # A copy of a model has a plan of its own.

    def __enter__(self):
        self._previous.append(current_plan())
        _thread.plan = self
        return self

    def __exit__(self, *exception):
        _thread.plan = self._previous.pop()
