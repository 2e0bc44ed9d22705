"""Ranks that share the users of a step have the gradients of one process that has them all, and learn."""

import faulthandler
import json
import pathlib
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from model import Sizes
from train import Trainer, join, leave, train

USERS = 96
# Seconds after which a rank tells where it waits, and gives up.
PATIENCE = 240
GPUS = torch.cuda.device_count() if torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0) else 0
WORLDS = [("cpu", 2), ("cuda", 2), ("cuda", 4)]


def on_ranks(work, device, world_size, folder):
    if device == "cuda" and GPUS < world_size:
        pytest.skip(f"there are fewer than {world_size} Hopper GPUs")
    mp.spawn(work, (device, world_size, f"file://{folder}/meeting"), world_size)


def check_gradients(rank, device, world_size, meeting):
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    device = join(device, rank, world_size, init_method=meeting)
    trainer, alone = Trainer(Sizes(), device, rank, world_size), Trainer(Sizes(), device)
    users = trainer.users.draw(USERS)
    assert torch.equal(users, alone.users.draw(USERS))
    share, whole = trainer.share(users), alone.share(users)
    rows = whole.items.shape[0]
    assert abs(share.items.shape[0] - rows / world_size) < 0.02 * rows, "the work is not balanced"
    loss = trainer.backward(share, USERS)
    dist.all_reduce(loss)
    torch.testing.assert_close(loss, alone.backward(whole, USERS), rtol=1e-5 if device == "cpu" else 1e-2, atol=0)
    tolerance = 2e-5 if device == "cpu" else 3e-2
    # The gradient of the keys' biases is zero up to rounding, which in bfloat16 is far from nothing.
    largest = max(parameter.grad.norm().item() for parameter in alone.model.parameters())
    floor = largest * (1e-5 if device == "cpu" else 1e-2)
    compared = 0
    for (name, parameter), wanted in zip(trainer.model.module.named_parameters(), alone.model.parameters()):
        norm = wanted.grad.norm().item()
        if norm > floor:
            assert (parameter.grad - wanted.grad).norm().item() < tolerance * norm, name
            compared += 1
    assert compared >= 11
    leave()


def check_learning(rank, device, world_size, meeting):
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    trainer = Trainer(Sizes(), join(device, rank, world_size, init_method=meeting), rank, world_size)
    first, last = train(trainer, 35, 192)
    assert last < first / 2, (first, last)
    # The replicas are still the same, bit by bit.
    for parameter in trainer.model.parameters():
        other = parameter.detach().clone()
        dist.broadcast(other, 0)
        assert torch.equal(other, parameter)
    leave()


@pytest.mark.parametrize("device,world_size", WORLDS)
def test_gradients_are_those_of_one_process(device, world_size, tmp_path):
    on_ranks(check_gradients, device, world_size, tmp_path)


@pytest.mark.parametrize("device,world_size", WORLDS)
def test_it_learns(device, world_size, tmp_path):
    on_ranks(check_learning, device, world_size, tmp_path)


def test_scaling_prints_json():
    script = pathlib.Path(__file__).with_name("scaling.py")
    small = "--device cpu --ranks 1 2 --users 8 --stretch 1 --width 16 --layers 1 --queries 2 --heads 1 --head-dim 8"
    short = "--warmup 1 --steps 2 --repeats 2"
    words = [sys.executable, script, *small.split(), *short.split()]
    result = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    assert [run["ranks"] for run in result["runs"]] == [1, 2]
    assert all(run["steps_per_s"] > 0 for run in result["runs"])
    assert result["runs"][0]["busiest_rank_over_mean"] == 1 and 1 <= result["runs"][1]["busiest_rank_over_mean"] < 1.5
