"""Dealing sequences to ranks."""

import torch


def balance(lengths, world_size):
    """Deals sequences to `world_size` ranks so that each gets nearly the same work.

    lengths: work of each sequence, such as its number of keys: a sequence of numbers or a vector. A tensor on a GPU is
    copied to the host. Returns `world_size` lists of indices, each ascending.

    It is the schedule of the forward's tiles: longest first, dealt in a zigzag, to the ranks from first to last and
    back again. The ranks' numbers of sequences differ by one at most, and their work by less than the longest sequence.
    """
    if not isinstance(world_size, int) or world_size < 1:
        raise ValueError(f"jfa: world_size: must be an integer of 1 or more, but is {world_size!r}")
    if isinstance(lengths, torch.Tensor):
        if lengths.dim() != 1:
            raise ValueError(f"jfa: lengths: must be a vector, but has {lengths.dim()} dimensions")
        lengths = lengths.tolist()
    lengths = list(lengths)
    for index, length in enumerate(lengths):
        if not length >= 0:
            raise ValueError(f"jfa: lengths[{index}]: must be 0 or more, but is {length}")
    ranks = [[] for _ in range(world_size)]
    for place, index in enumerate(sorted(range(len(lengths)), key=lambda i: -lengths[i])):
        turn, rank = divmod(place, world_size)
        ranks[rank if turn % 2 == 0 else world_size - 1 - rank].append(index)
    return [sorted(rank) for rank in ranks]
