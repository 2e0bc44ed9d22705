"""Trains the pooling model, with DistributedDataParallel if it was started by torchrun:

python3 examples/ddp/train.py --device cpu
torchrun --nproc-per-node 2 examples/ddp/train.py --device cpu     # gloo
torchrun --nproc-per-node 4 examples/ddp/train.py                  # NCCL, one GPU each
"""

import argparse
import contextlib
import os
import sys
import time

import torch
import torch.distributed as dist
from data import Users
from model import Pooling, Sizes
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import jfa


class Trainer:
    """A replica of the model on this rank's device. Every rank draws the same users and works on its share of them."""

    def __init__(self, sizes, device, rank=0, world_size=1, stretch=1):
        self.rank, self.world_size, self.device = rank, world_size, torch.device(device)
        self.users = Users(sizes, stretch=stretch)
        torch.manual_seed(1)
        self.model = Pooling(sizes).to(self.device)
        if world_size > 1:
            devices = [self.device] if self.device.type == "cuda" else None
            self.model = DistributedDataParallel(self.model, device_ids=devices, gradient_as_bucket_view=True)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=5e-3)
        self.plan = jfa.Plan()  # For all layers, forward and backward.

    def share(self, users):
        return self.users.share(users, self.rank, self.world_size).to(self.device)

    def backward(self, batch, count):
        """Gradients of the mean loss over the `count` users of all ranks' batches; returns this rank's part of it."""
        self.plan.update(batch.kv_offsets)
        cuda = self.device.type == "cuda"  # Where jfa's kernels are for 16-bit types.
        with self.plan, torch.autocast("cuda", torch.bfloat16) if cuda else contextlib.nullcontext():
            scores = self.model(batch.items, batch.kv_offsets, self.users.longest)
        loss = cross_entropy(scores.float(), batch.favourites, reduction="sum") / count
        # DistributedDataParallel takes the mean of the ranks' gradients, but their sum is that of one process.
        (loss * self.world_size).backward()
        return loss.detach()

    def step(self, batch, count):
        self.optimizer.zero_grad()
        loss = self.backward(batch, count)
        self.optimizer.step()
        return loss


def join(device, rank, world_size, **options):
    """Joins the process group and returns this rank's device."""
    if device == "cuda":
        torch.cuda.set_device(rank)
        device = f"cuda:{rank}"
    else:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // world_size))
    if world_size > 1:
        dist.init_process_group("gloo" if device == "cpu" else "nccl", rank=rank, world_size=world_size, **options)
    return device


def leave():
    """The last call of a rank."""
    if not dist.is_initialized():
        return
    if dist.get_backend() == "gloo":
        # Its destructor holds the interpreter's lock while it waits for threads, and those need that lock to drop the
        # tensors of the last exchange: now and then they wait for each other for ever. So the process ends without it.
        sys.stdout.flush()
        os._exit(0)
    dist.destroy_process_group()


def train(trainer, steps, users):
    """Mean losses of the first and the last ten steps."""
    losses = []
    start = time.perf_counter()
    for step in range(steps):
        loss = trainer.step(trainer.share(trainer.users.draw(users)), users)
        if trainer.world_size > 1:
            dist.all_reduce(loss)
        losses.append(loss.item())
        if trainer.rank == 0 and (step % 10 == 0 or step + 1 == steps):
            print(f"step {step:3}: loss {losses[-1]:.3f}")
    seconds = time.perf_counter() - start
    first, last = (sum(part) / len(part) for part in (losses[:10], losses[-10:]))
    if trainer.rank == 0:
        text = f"mean loss of the first 10 steps {first:.3f}, of the last 10 {last:.3f}"
        print(f"{trainer.world_size} ranks, {steps / seconds:.1f} steps/s; {text}")
    return first, last


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--users", type=int, default=256, help="of a step, on all ranks together")
    options = parser.parse_args()
    rank, world_size = (int(os.environ.get(name, default)) for name, default in (("RANK", 0), ("WORLD_SIZE", 1)))
    device = join(options.device, rank, world_size)
    train(Trainer(Sizes(), device, rank, world_size), options.steps, options.users)
    leave()


if __name__ == "__main__":
    main()
