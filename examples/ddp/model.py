"""Attention pooling: a few learned queries look at a user's whole history."""

import dataclasses

import torch
from torch import nn

import jfa


@dataclasses.dataclass
class Sizes:
    """Sizes of the model."""

    items: int = 4000  # Embeddings.
    topics: int = 8  # What is to be told apart.
    width: int = 64  # Elements of an item's embedding.
    layers: int = 2  # Poolings, each after another transformation of the items.
    queries: int = 4  # Learned queries of a layer.
    heads: int = 2
    head_dim: int = 32


class Pooling(nn.Module):
    """Scores of the topics, `[users, topics]`, from the items of all histories."""

    def __init__(self, sizes):
        super().__init__()
        self.sizes = sizes
        inner, layers = sizes.heads * sizes.head_dim, range(sizes.layers)
        self.embedding = nn.Embedding(sizes.items, sizes.width)
        self.mix = nn.ModuleList(nn.Linear(sizes.width, sizes.width) for _ in layers)
        self.keys = nn.ModuleList(nn.Linear(sizes.width, inner) for _ in layers)
        self.values = nn.ModuleList(nn.Linear(sizes.width, inner) for _ in layers)
        self.seeds = nn.ParameterList(torch.randn(sizes.queries, sizes.heads, sizes.head_dim) for _ in layers)
        self.scores = nn.Linear(sizes.layers * sizes.queries * inner, sizes.topics)

    def forward(self, items, kv_offsets, max_seqlen):
        """items: `[rows]`, user after user; kv_offsets: `[users + 1]`; max_seqlen: bound of the histories' lengths."""
        x = self.embedding(items)
        pooled = []
        for mix, keys, values, seeds in zip(self.mix, self.keys, self.values, self.seeds):
            x = x + torch.relu(mix(x))
            k, v = (rows(x).view(-1, self.sizes.heads, self.sizes.head_dim) for rows in (keys, values))
            o = jfa.attention(seeds, k, v, kv_offsets, max_seqlen_kv=max_seqlen, no_gaps=True)
            pooled.append(o.flatten(1))
        return self.scores(torch.cat(pooled, 1))
