#!/usr/bin/env python3
"""What a call costs beside the kernels: PyTorch operators on small shapes, eager and replayed from CUDA graphs.

Usage: python3 benchmarks/operator_overhead.py [--device cuda|cpu] [--cases self,broadcast] [--out FILE.json]

Sides: jfa.attention; the same with a jfa.Plan that the layers of a step share; torch.nn.attention.varlen.varlen_attn;
FlashAttention-4's varlen function. One that cannot be imported, or fails, is left out by name. The shapes are so small
that the GPU waits for the host.

A step is a number of layers, each attention to the same tensors: forward alone, or forward and backward. For a
broadcast Q the peers get a copy for every sequence, made beforehand; their sum of dQ over the batch is part of the
step, since the caller needs it. Printed, per layer of a step:

- host: time until the calls have returned; the GPU is waited for between steps, outside of it;
- wall: time of steps one behind the other, until the GPU is done with the last.

Results are compared with float64 beforehand, and those of a graph with the eager ones.
"""

import argparse
import gc
import json
import pathlib
import statistics
import sys
import time

import torch

import cases
import sides

# A side with a larger relative error (Frobenius norm) computes something else. bf16 gives 0.0024.
TOLERANCE = 0.01
PHASES = ("forward", "forward+backward")


class Stop(Exception):
    """Nothing that follows would mean anything: the device is broken."""


def small_cases():
    """Name -> shape."""
    lengths = [max(1, length) for length in cases.uniform(16, 128, 0.5)]  # Peers need not serve empty sequences.
    return {
        "self": cases.Case("operator", "B16 H4 D64 causal U(1,128)", 4, 64, lengths),
        "self-d128": cases.Case("operator", "B16 H4 D128 causal U(1,128)", 4, 128, lengths),
        "broadcast": cases.Case("operator", "B16 H4 D128 Nq64 U(1,128)", 4, 128, lengths, 64),
    }


class Jfa:
    """jfa.attention, which plans at every call and every backward."""

    name = "jfa"
    shared = False

    def __init__(self, case):
        import jfa

        self.plan = jfa.Plan() if self.shared else None
        self.sequences = {"q_offsets": None if case.broadcast else case.q_offsets}
        self.kv_offsets = case.kv_offsets
        options = {"max_seqlen_kv": case.longest, "causal": not case.broadcast, "no_gaps": True, "plan": self.plan}
        self.q, self.k, self.v = (t.detach().requires_grad_() for t in (case.q, case.k, case.v))
        self.grad_o = case.grad_o.view(case.batch, *case.q.shape) if case.broadcast else case.grad_o
        self.function = lambda q, k, v: jfa.attention(q, k, v, case.kv_offsets, **self.sequences, **options)

    def begin_step(self):
        if self.plan is not None:
            self.plan.update(self.kv_offsets, **self.sequences)

    def sum_grad_q(self, grad_q):
        return grad_q


class JfaPlan(Jfa):
    """The same with one planning a step."""

    name = "jfa, one plan a step"
    shared = True


class Peer:
    """A side of the GPU benchmark."""

    def __init__(self, case):
        side = self.side(case)
        self.q, self.k, self.v, self.function = side.q, side.k, side.v, side.function
        self.grad_o, self.sum_grad_q = case.grad_o, case.sum_grad_q

    def begin_step(self):
        pass


class VarlenAttn(Peer):
    """torch.nn.attention.varlen.varlen_attn."""

    name = "varlen_attn"
    side = sides.FlashAttention2


class FlashAttention4(Peer):
    """FlashAttention-4's varlen function."""

    name = "flash-attn-4"
    side = sides.FlashAttention4


SIDES = (Jfa, JfaPlan, VarlenAttn, FlashAttention4)


def step(side, phase, layers):
    """A function that does one step and returns the results of its last layer: O, and with a backward dQ, dK, dV."""
    inputs = (side.q, side.k, side.v)

    def first(result):
        return result[0] if isinstance(result, tuple) else result

    def forward():
        side.begin_step()
        with torch.no_grad():
            for _ in range(layers):
                o = first(side.function(*inputs))
        return (o,)

    def both():
        side.begin_step()
        for _ in range(layers):
            o = first(side.function(*inputs))
            grad_q, grad_k, grad_v = torch.autograd.grad(o, inputs, side.grad_o)
            grad_q = side.sum_grad_q(grad_q)
        return o, grad_q, grad_k, grad_v

    return forward if phase == "forward" else both


def check(case, results):
    """Raises if results are not those of float64."""
    exact = [case.exact(b, len(results) > 1) for b in range(case.batch)]
    if case.broadcast and len(results) > 1:
        wanted = [torch.cat([e["o"] for e in exact]), sum(e["dq"] for e in exact)]
    else:
        wanted = [torch.cat([e[name] for e in exact]) for name in ("o", "dq")[: len(results)]]
    wanted += [torch.cat([e[name] for e in exact]) for name in ("dk", "dv")] if len(results) > 1 else []
    for name, result, reference in zip(("O", "dQ", "dK", "dV"), results, wanted):
        distance = (result.detach().double().reshape(reference.shape) - reference).norm() / reference.norm()
        if not float(distance) < TOLERANCE:
            raise ValueError(f"{name} has a relative error of {float(distance):.3g}")


def synchronize():
    if cases.DEVICE == "cuda":
        torch.cuda.synchronize()


def measure(call, layers, options):
    """Microseconds a layer: host time (least, median), and wall time."""
    for _ in range(3):
        call()
    synchronize()
    host, wall = [], []
    gc.collect()
    gc.disable()
    try:
        for _ in range(options.steps):
            begin = time.perf_counter_ns()
            call()
            host.append(time.perf_counter_ns() - begin)
            synchronize()
        for _ in range(options.repeats):
            begin = time.perf_counter_ns()
            for _ in range(max(1, options.steps // options.repeats)):
                call()
            synchronize()
            wall.append((time.perf_counter_ns() - begin) / max(1, options.steps // options.repeats))
    finally:
        gc.enable()
    unit = 1e3 * layers
    return {
        "host_us_min": min(host) / unit,
        "host_us": statistics.median(host) / unit,
        "wall_us": statistics.median(wall) / unit,
    }


def capture(call):
    """A CUDA graph of a call, and the results that a replay fills."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = call()
    return graph, results


def run_side(case, made, phase, options, modes):
    """Rows of one side: one a mode."""
    call = step(made, phase, options.layers)
    # Not kept: for the sake of the graph behind the results autograd would wait for the default stream under capture.
    check(case, call())
    for mode in modes:
        replayed = call
        if mode == "graph":
            graph, results = capture(call)
            for result in results:
                result.detach().fill_(float("nan"))
            graph.replay()
            check(case, results)
            replayed = graph.replay
        yield {"phase": phase, "side": made.name, "mode": mode, **measure(replayed, options.layers, options)}


def run_case(name, case, options, rows, notes):
    """Adds the rows of one shape, and a note for each side that is left out."""
    case.fill()
    modes = ("eager", "graph") if cases.DEVICE == "cuda" else ("eager",)
    shape = {"case": name, "shape": case.name, "total_kv": case.total_kv}
    for kind in SIDES:
        # The peers have no kernels for the CPU.
        if cases.DEVICE == "cpu" and issubclass(kind, Peer):
            continue
        phase = "import"
        try:
            made = kind(case)
            for phase in PHASES:
                for row in run_side(case, made, phase, options, modes):
                    rows.append(shape | row)
                    print(line(rows[-1]), flush=True)
        except Exception as failure:  # whatever a peer raises
            text = (str(failure).strip().splitlines() or [""])[0][:200]
            notes.append(f"{name}, {kind.name}, {phase}: left out: {type(failure).__name__}: {text}")
            print(f"  {notes[-1]}", flush=True)
            try:
                synchronize()
            except RuntimeError as broken:
                raise Stop(f"{kind.name} broke the device") from broken
    case.empty()


def line(row):
    return (
        f"{row['case']:10s} {row['phase']:17s} {row['side']:21s} {row['mode']:6s}"
        f" host {row['host_us']:8.1f} us (least {row['host_us_min']:8.1f})   wall {row['wall_us']:8.1f} us"
    )


def table(rows):
    """A Markdown table: one line a case, phase and side; microseconds a layer."""
    lines = ["| case | phase | side | host, eager | wall, eager | host, graph | wall, graph |", "|---" * 7 + "|"]
    modes = {}
    for row in rows:
        modes.setdefault((row["case"], row["phase"], row["side"]), {})[row["mode"]] = row
    for key, found in modes.items():
        values = [
            f"{found[mode][value]:.1f}" if mode in found else "-"
            for mode in ("eager", "graph")
            for value in ("host_us", "wall_us")
        ]
        lines.append(f"| {' | '.join(key)} | {' | '.join(values)} |")
    return "\n".join(lines)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda", help="the CPU has jfa alone, and no graphs"
    )
    parser.add_argument("--cases", default=",".join(small_cases()), help="comma-separated (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=8, help="layers of a step (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=100, help="timed steps (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="into which the wall time divides them")
    parser.add_argument("--commit", default="unknown", help="commit of jfa, for the results")
    parser.add_argument("--out", type=pathlib.Path, help="JSON file to write")
    options = parser.parse_args()
    unknown = set(options.cases.split(",")) - set(small_cases())
    if unknown:
        parser.error(f"unknown cases: {', '.join(sorted(unknown))}")
    return options


def main():
    options = arguments()
    cases.DEVICE = options.device
    gpu = torch.cuda.get_device_name() if options.device == "cuda" else "none"
    rows, notes = [], []
    try:
        for name in options.cases.split(","):
            run_case(name, small_cases()[name], options, rows, notes)
    except Stop as reason:
        notes.append(f"stopped: {reason}")
        print(notes[-1])
    print(table(rows))
    if options.out:
        result = {"gpu": gpu, "commit": options.commit, "torch": torch.__version__, "layers": options.layers}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result | {"rows": rows, "left_out": notes}, indent=1) + "\n")
    sys.exit(0 if rows and not any("jfa" in note or "stopped" in note for note in notes) else 1)


if __name__ == "__main__":
    main()
