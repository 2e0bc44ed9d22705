#!/usr/bin/env python3
"""What a deterministic backward costs: its GPU time over that of the default, shape by shape, in one process.

Usage: python3 benchmarks/deterministic.py --library LIBJFA [--sets jagged,d64,dense] [--cases Nq512] [--reps 7]

Both plans hold the same batch. Times are medians as in peers.py.
"""

import argparse
import statistics

import cases
import peers
import sides


def measure(case, options):
    """Milliseconds of the backward by kind of plan."""
    case.fill()
    made = {name: sides.Jfa(case, options.library, deterministic=name == "deterministic") for name in
            ("default", "deterministic")}
    for side in made.values():
        side.prepare_backward()
    calls = {name: side.backward for name, side in made.items()}
    times = peers.gpu_ms(calls, options.reps, sleep=peers.SLEEP_CYCLES["backward"])
    for side in made.values():
        side.close()
    case.empty()
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, help="libjfa.so with CUDA")
    parser.add_argument("--sets", default="jagged,d64,dense", help="comma-separated (default: %(default)s)")
    parser.add_argument("--cases", default="", help="only cases whose name contains one of these, comma-separated")
    parser.add_argument("--reps", type=int, default=7, help="timed calls of each plan (default: %(default)s)")
    options = parser.parse_args()
    costs = {}
    for name in options.sets.split(","):
        for case in cases.all_sets()[name]:
            if not any(part in case.name for part in options.cases.split(",")):
                continue
            times = measure(case, options)
            cost = times["deterministic"] / times["default"]
            costs.setdefault(f"{name}, {case.queries} queries", []).append(cost)
            print(f"{name:7s} {case.name:34s} {times['default']:8.3f} ms, deterministic {times['deterministic']:8.3f} ms "
                  f"({100 * cost - 100:+.1f} %)", flush=True)
    for name, found in costs.items():
        print(f"{name}: {100 * statistics.geometric_mean(found) - 100:+.1f} %")


if __name__ == "__main__":
    main()
