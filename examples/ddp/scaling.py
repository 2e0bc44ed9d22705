"""Steps a second of the same training on 1, 2, 4 ranks, as JSON:

    python3 examples/ddp/scaling.py --ranks 1 2 4 > scaling.json

The users of a step are the same however many ranks share them (strong scaling). Histories are stretched, so that there
is work for several GPUs. Batches lie on the devices before the clock runs.
"""

import argparse
import json
import pathlib
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from model import Sizes
from train import Trainer, join, leave

BATCHES = 4  # Different ones, in turn.


def measure(rank, world_size, sizes, options, folder):
    device = join(options.device, rank, world_size, init_method=f"file://{folder}/{world_size}")
    trainer = Trainer(sizes, device, rank, world_size, options.stretch)
    drawn = [trainer.users.draw(options.users) for _ in range(BATCHES)]
    batches = [trainer.share(users) for users in drawn]
    whole = [int(trainer.users.lengths[users].sum()) for users in drawn]

    def run(steps):
        if device != "cpu":
            torch.cuda.synchronize()
        if world_size > 1:
            dist.barrier()
        start = time.perf_counter()
        for step in range(steps):
            trainer.step(batches[step % BATCHES], options.users)
        if device != "cpu":
            torch.cuda.synchronize()
        if world_size > 1:
            dist.barrier()
        return time.perf_counter() - start

    run(options.warmup)
    seconds = sorted(run(options.steps) for _ in range(options.repeats))
    busiest = torch.tensor([batch.items.shape[0] for batch in batches], dtype=torch.float64)
    if world_size > 1:
        busiest = busiest.to(device)
        dist.all_reduce(busiest, op=dist.ReduceOp.MAX)
    if rank == 0:
        median = seconds[len(seconds) // 2]
        mean = torch.tensor(whole, dtype=torch.float64) / world_size
        result = {
            "ranks": world_size,
            "steps_per_s": options.steps / median,
            "items_per_s": sum(whole) / BATCHES * options.steps / median,
            "spread": (seconds[-1] - seconds[0]) / median,
            "busiest_rank_over_mean": (busiest.cpu() / mean).max().item(),
        }
        pathlib.Path(folder, f"{world_size}.json").write_text(json.dumps(result))
    leave()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cuda = torch.cuda.is_available()
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if cuda else "cpu")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--users", type=int, default=943, help="of a step, on all ranks together")
    parser.add_argument("--stretch", type=int, default=8, help="times the real lengths")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--queries", type=int, default=16)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--warmup", type=int, default=8)
    parser.add_argument("--steps", type=int, default=20, help="of one measurement")
    parser.add_argument("--repeats", type=int, default=5, help="measurements, of which the median counts")
    options = parser.parse_args()
    if options.device == "cuda" and max(options.ranks) > torch.cuda.device_count():
        parser.error(f"--ranks: there are {torch.cuda.device_count()} GPUs")
    sizes = Sizes(
        width=options.width,
        layers=options.layers,
        queries=options.queries,
        heads=options.heads,
        head_dim=options.head_dim,
    )
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        for ranks in options.ranks:
            mp.spawn(measure, (ranks, sizes, options, folder), ranks)
            runs.append(json.loads(pathlib.Path(folder, f"{ranks}.json").read_text()))
    for run in runs:
        run["speedup"] = run["steps_per_s"] / runs[0]["steps_per_s"]
    name = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
    print(json.dumps({"device": name, "torch": torch.__version__, "options": vars(options), "runs": runs}, indent=2))


if __name__ == "__main__":
    main()
