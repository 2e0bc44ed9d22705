"""Users with real lengths of their histories and made-up items, dealt to ranks."""

import dataclasses
import pathlib

import torch

import jfa

LENGTHS = pathlib.Path(__file__).resolve().parents[1] / "movielens100k_history_lengths.txt"
# Items below this number tell a user's favourite topic, which is their number modulo the topics; the rest is noise.
TELLERS = 400


@dataclasses.dataclass
class Histories:
    """Some users' histories, one after the other."""

    items: torch.Tensor  # [rows], int64
    kv_offsets: torch.Tensor  # [users + 1], int32
    favourites: torch.Tensor  # [users], int64: the topic to be found out

    def to(self, device):
        return Histories(self.items.to(device), self.kv_offsets.to(device), self.favourites.to(device))


class Users:
    """Users whose favourite topic shows in every twentieth item of their history. The same on every rank."""

    def __init__(self, sizes, seed=1, stretch=1):
        """stretch: how many times as long as in the file the histories are."""
        self.random = torch.Generator().manual_seed(seed)
        below = lambda bound, *shape: torch.randint(bound, shape, generator=self.random)
        self.lengths = torch.tensor([int(line) for line in LENGTHS.read_text().split()]) * stretch
        self.favourites = below(sizes.topics, len(self.lengths))
        self.histories = []
        for length, favourite in zip(self.lengths.tolist(), self.favourites):
            items = TELLERS + below(sizes.items - TELLERS, length)
            telling = min(length, length // 20 + 1)  # In front: attention has no order here.
            items[:telling] = below(TELLERS // sizes.topics, telling) * sizes.topics + favourite
            self.histories.append(items)

    @property
    def longest(self):
        return int(self.lengths.max())

    def draw(self, count):
        """Numbers of `count` users drawn at random."""
        return torch.randperm(len(self.histories), generator=self.random)[:count]

    def batch(self, users):
        """Their histories."""
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), self.lengths[users].cumsum(0)])
        items = torch.cat([torch.empty(0, dtype=torch.int64), *(self.histories[user] for user in users)])
        return Histories(items, offsets.int(), self.favourites[users])

    def share(self, users, rank, world_size):
        """The part of these users that `rank` works on, so that all ranks have about as many items."""
        return self.batch(users[jfa.balance(self.lengths[users], world_size)[rank]])
