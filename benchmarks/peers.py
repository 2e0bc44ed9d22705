#!/usr/bin/env python3
"""Times jfa and its peers on one GPU, in one process.

Usage: python3 benchmarks/peers.py --library LIBJFA [--sets jagged,d64,dense,nq64,self] [--out FILE.json] ...

Peers: FlashAttention-4's kernels for Hopper, cuDNN, and PyTorch's FlashAttention-2; one that cannot be imported is left
out. All compute the same: broadcast-Q attention over jagged K and V (Q copied for every sequence beforehand, untimed,
for a peer; its sum of dQ over the batch is timed, since the caller needs it), or packed causal self-attention.

Times are medians of GPU time, one side after the other for each case. A sleeping kernel goes first, so that the host's
own cost stays out. jfa's planner is timed apart (`update_ms`: once a step, for all layers) and together with one forward
(`update_forward_ms`). Results of every side are compared with float64 on a sample of the sequences, after memory was filled with NaN; a side that is
wrong has no time.
"""

import argparse
import collections
import ctypes
import json
import math
import pathlib
import statistics
import sys
import time
import traceback

import torch

import cases
import jfa_capi
import sides

# A side with a larger relative error (Frobenius norm) is wrong, not fast. bf16 gives 0.0024.
TOLERANCE = 0.01
SLEEP_CYCLES = {"forward": 2_000_000, "backward": 4_000_000}


class Stop(Exception):
    """Nothing that follows would mean anything: the device is broken."""


def gpu_ms(calls, reps, warm=3, sleep=SLEEP_CYCLES["forward"]):
    """Median GPU time of each of several functions, one after the other: name -> milliseconds."""
    times = {}
    for name, call in calls.items():
        samples = []
        for _ in range(warm + reps):
            torch.cuda._sleep(sleep)
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            call()
            end.record()
            end.synchronize()
            samples.append(begin.elapsed_time(end))
        times[name] = statistics.median(samples[warm:])
    return times


def poison(*tensors):
    """Leaves NaN in the memory that the next tensors of these sizes get."""
    for tensor in [torch.full_like(t, float("nan")) for t in tensors]:
        del tensor


def error(result, exact):
    """Relative Frobenius error; for an exact 0, whether the result is 0 as well."""
    norm = exact.norm()
    distance = (result.double() - exact).norm()
    value = float(distance / norm) if norm > 0 else float(distance)
    return value if value == value else math.inf


def check_forward(case, side, exact):
    poison(case.grad_o)
    o = side.forward()
    errors = {"o_err": 0.0}
    for b, reference in exact.items():
        # FlashAttention and cuDNN need not write the rows of an empty sequence.
        if case.lengths[b] > 0 or side.name == "jfa":
            errors["o_err"] = max(errors["o_err"], error(o[case.rows_of_o(b)], reference["o"]))
        if side.name == "jfa":
            lse, finite = side.lse(case, b).double(), torch.isfinite(reference["lse"])
            same = bool((lse[~finite] == -math.inf).all())
            worst = float((lse - reference["lse"])[finite].abs().max()) if finite.any() else 0.0
            errors["lse_err"] = max(errors.get("lse_err", 0.0), worst if same and worst == worst else math.inf)
    return errors


def check_backward(case, side, exact, grad_q):
    poison(case.q, case.k, case.v)
    dq, dk, dv = side.backward()
    errors = {"dk_err": 0.0, "dv_err": 0.0, "dq_err": error(dq, grad_q) if case.broadcast else 0.0}
    for b, reference in exact.items():
        if case.lengths[b] > 0:
            rows = case.rows_of_kv(b)
            errors["dk_err"] = max(errors["dk_err"], error(dk[rows], reference["dk"]))
            errors["dv_err"] = max(errors["dv_err"], error(dv[rows], reference["dv"]))
            if not case.broadcast:
                errors["dq_err"] = max(errors["dq_err"], error(dq[case.rows_of_o(b)], reference["dq"]))
    return errors


def exact_grad_q(case):
    """float64 dQ of a broadcast, the sum over the batch."""
    return sum(case.exact(b, True)["dq"] for b in range(case.batch) if case.lengths[b] > 0)


def attempt(notes, name, action):
    """The result of an action on one side, or None and a note if it fails. A broken device ends everything."""
    try:
        return action()
    except Exception as failure:  # whatever a peer raises
        notes.append(f"{name}: {type(failure).__name__}: {str(failure).strip()[:300]}")
        if not isinstance(failure, (ImportError, jfa_capi.JfaError)):
            traceback.print_exc()
        try:
            torch.cuda.synchronize()
        except RuntimeError as broken:
            raise Stop(f"{name} broke the device: {broken}") from failure
        return None


class Run:
    """The measurement of one case: a row of the results."""

    def __init__(self, case, options, excluded):
        self.case, self.options, self.excluded = case, options, excluded
        self.row = {"set": case.set, "case": case.name, "total_kv": case.total_kv, "sides": {}, "notes": []}
        self.notes = self.row["notes"]

    def measure(self):
        made = {}
        makers = {"jfa": lambda: sides.Jfa(self.case, self.options.library)}
        makers |= {peer.name: lambda peer=peer: peer(self.case) for peer in sides.PEERS}
        for name, maker in makers.items():
            if name not in self.excluded:
                side = attempt(self.notes, name, maker)
                if side is not None:
                    made[name] = side
        with_backward = self.options.backward and "jfa backward" not in self.excluded
        exact = {b: self.case.exact(b, with_backward) for b in self.case.sample()}
        self.phase("fwd", made, lambda name: check_forward(self.case, made[name], exact), "forward")
        if with_backward:
            for name in list(made):
                if attempt(self.notes, f"{name} backward", lambda: made[name].prepare_backward() or True) is None:
                    del made[name]
            grad_q = exact_grad_q(self.case) if self.case.broadcast else None
            self.phase("bwd", made, lambda name: check_backward(self.case, made[name], exact, grad_q), "backward")
        for side in made.values():
            side.close()
        # A peer that failed once is not tried again for the rest of the set.
        failed = {name for name in makers if any(note.startswith(name + ":") for note in self.notes)}
        self.excluded.update(failed - {"jfa"})

    def phase(self, key, made, check, method):
        """Checks and times every side; jfa first, so that without it nothing else is run."""
        good = {}
        for name in list(made):
            errors = attempt(self.notes, name if key == "fwd" else f"{name} backward", lambda: check(name))
            if errors is None:
                if name == "jfa":
                    self.excluded.update([f"jfa {method}"])
                    return
                continue
            self.row["sides"].setdefault(name, {}).update(errors)
            worst = max(value for error_name, value in errors.items() if error_name != "lse_err")
            if worst < TOLERANCE and errors.get("lse_err", 0.0) < 1e-3:
                good[name] = getattr(made[name], method)
            else:
                self.notes.append(f"wrong {method} results of {name}, left out: {errors}")
                made.pop(name).close()
        if key == "fwd" and "jfa" in good:
            good["update"] = made["jfa"].update
            good["update_forward"] = lambda: (made["jfa"].update(), made["jfa"].forward())
        times = gpu_ms(good, self.options.reps, sleep=SLEEP_CYCLES[method])
        for name, ms in times.items():
            if name.startswith("update"):
                self.row["sides"]["jfa"][f"{name}_ms"] = ms
            else:
                self.row["sides"][name][f"{key}_ms"] = ms
        peers = {name: ms for name, ms in times.items() if name in {peer.name for peer in sides.PEERS}}
        self.row[f"{key}_roofline_ms"] = self.case.roofline_ms(key == "bwd")
        if "jfa" in times:
            self.row[f"{key}_roofline"] = self.row[f"{key}_roofline_ms"] / times["jfa"]
            if peers:
                self.row[f"{key}_best"] = min(peers, key=peers.get)
                self.row[f"{key}_vs_best"] = min(peers.values()) / times["jfa"]


def line(row):
    """A row as text: times in ms, the ratio to the best peer, the fraction of the roofline."""
    parts = [f"{row['set']:7s} {row['case']:36s}"]
    for key in ("fwd", "bwd"):
        found = {name: side[f"{key}_ms"] for name, side in row["sides"].items() if f"{key}_ms" in side}
        if found:
            parts.append(f"{key} " + " ".join(f"{name} {ms:.3f}" for name, ms in found.items()))
        if f"{key}_vs_best" in row:
            parts.append(f"x{row[f'{key}_vs_best']:.2f}")
        if f"{key}_roofline" in row:
            parts.append(f"{100 * row[f'{key}_roofline']:.0f} %")
    ours = row["sides"].get("jfa", {})
    if "update_ms" in ours:
        parts.append(f"update {1e3 * ours['update_ms']:.1f} us, with forward {ours['update_forward_ms']:.3f}")
    worst = {
        name: max(value for key, value in side.items() if key.endswith("_err") and key != "lse_err")
        for name, side in row["sides"].items()
    }
    return " | ".join(parts + ["error, % " + " ".join(f"{name} {100 * value:.2f}" for name, value in worst.items())])


def summarise(rows):
    """Set -> geometric means and lowest values of its cases; None where nothing was measured."""
    summary = {}
    for name in dict.fromkeys(row["set"] for row in rows):
        entry = summary[name] = {}
        for key in ("fwd", "bwd"):
            found = [row for row in rows if row["set"] == name]
            ratios = [row[f"{key}_vs_best"] for row in found if f"{key}_vs_best" in row]
            roofline = [row[f"{key}_roofline"] for row in found if f"{key}_roofline" in row]
            entry[f"{key}_vs_best"] = statistics.geometric_mean(ratios) if ratios else None
            entry[f"{key}_min"] = min(ratios, default=None)
            entry[f"{key}_roofline"] = statistics.geometric_mean(roofline) if roofline else None
        steps = [ratio for ratio in map(step_vs_best, found) if ratio is not None]
        entry["step_vs_best"] = statistics.geometric_mean(steps) if steps else None
        entry["step_min"] = min(steps, default=None)
        entry["cases"] = sum(row["set"] == name for row in rows)
    return summary


def step_vs_best(row):
    """A step end to end: forward and backward of the best peer over jfa's planner, forward and backward."""
    jfa = row["sides"].get("jfa", {})
    peers = [side for name, side in row["sides"].items() if name != "jfa" and {"fwd_ms", "bwd_ms"} <= side.keys()]
    if not peers or not {"update_forward_ms", "bwd_ms"} <= jfa.keys():
        return None
    return min(side["fwd_ms"] + side["bwd_ms"] for side in peers) / (jfa["update_forward_ms"] + jfa["bwd_ms"])


def ceilings(reps):
    """The assumed ceilings, and what this GPU reaches with plain PyTorch."""
    a, b = (torch.randn(8192, 8192, device=cases.DEVICE, dtype=torch.bfloat16) for _ in range(2))
    source = torch.empty(2 << 30, device=cases.DEVICE, dtype=torch.uint8).random_(0, 255)
    target = torch.empty_like(source)
    times = gpu_ms({"matmul": lambda: a @ b, "copy": lambda: target.copy_(source)}, reps)
    return {
        "tensor_tflops": cases.TENSOR_TFLOPS,
        "hbm_tbs": cases.HBM_TBS,
        "matmul_tflops": 2 * 8192**3 / times["matmul"] / 1e9,
        "copy_tbs": 2 * source.numel() / times["copy"] / 1e9,
    }


def overheads(library, reps):
    """Host time of a call, microseconds (loops of 200 calls without a synchronisation; ctypes needs `ctypes_us` of it, as
    for a function that does nothing), and GPU time of the planner for batches of short sequences."""
    found = {"update_gpu_us": {}}
    for batch in (1024, 65536, 1 << 20):
        case = cases.Case("", "", 1, 64, torch.randint(0, 30, (batch,)).tolist(), queries=1)
        case.fill()
        side = sides.Jfa(case, library)
        found["update_gpu_us"][str(batch)] = 1e3 * gpu_ms({"update": side.update}, reps)["update"]
        if batch == 1024:
            attention = side.attention
            attention.forward()
            stream, lib = attention.stream(), attention.lib
            forward, batch_arg = ctypes.byref(attention.forward_args), ctypes.byref(attention.batch)
            backward = ctypes.byref(attention.backward_args)
            nothing = ctypes.CDLL(None).memcmp
            found["ctypes_us"] = host_us(lambda: nothing(attention.plan, forward, None), reps)
            found["forward_host_us"] = host_us(lambda: lib.jfa_forward(attention.plan, forward, stream), reps)
            found["backward_host_us"] = host_us(lambda: lib.jfa_backward(attention.plan, backward, stream), reps)
            found["update_host_us"] = host_us(lambda: lib.jfa_plan_update(attention.plan, batch_arg, stream), reps)
        side.close()
        case.empty()
        del side
        torch.cuda.empty_cache()
    return found


def host_us(call, reps, count=200):
    """Median of `reps` loops, each with an idle GPU ahead of it."""
    call()
    times = []
    for _ in range(reps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            call()
        times.append(1e6 * (time.perf_counter() - begin) / count)
    torch.cuda.synchronize()
    return statistics.median(times)


def merge(result, paths):
    """Adds the rows of earlier results of the same commit for cases that this run did not measure."""
    for path in paths:
        earlier = json.loads(pathlib.Path(path).read_text())
        if (earlier["commit"], earlier["gpu"]) != (result["commit"], result["gpu"]):
            sys.exit(f"{path} is of commit {earlier['commit']} on {earlier['gpu']}: not comparable")
        present = {(row["set"], row["case"]) for row in result["rows"]}
        result["rows"] += [row for row in earlier["rows"] if (row["set"], row["case"]) not in present]
    order = {name: i for i, name in enumerate(cases.all_sets())}
    result["rows"].sort(key=lambda row: order.get(row["set"], len(order)))


def report(result):
    for name, entry in result["summary"].items():
        for key in ("fwd", "bwd"):
            if entry[f"{key}_vs_best"] is not None:
                mean, lowest, roofline = (entry[f"{key}_{what}"] for what in ("vs_best", "min", "roofline"))
                print(
                    f"{name:7s} {key}, {entry['cases']} cases: {mean:.3f} times as fast as the best peer (geometric "
                    f"mean), at least {lowest:.3f}; {100 * roofline:.0f} % of the roofline")
        if entry["step_vs_best"] is not None:
            print(
                f"{name:7s} planner, forward and backward: {entry['step_vs_best']:.3f} times as fast, at least "
                f"{entry['step_min']:.3f}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, help="libjfa.so with CUDA")
    parser.add_argument("--sets", default=",".join(cases.all_sets()), help="comma-separated (default: %(default)s)")
    parser.add_argument("--cases", default="", help="only cases whose name contains one of these, comma-separated")
    parser.add_argument("--reps", type=int, default=15, help="timed calls of each side (default: %(default)s)")
    parser.add_argument("--budget", type=float, default=540, help="seconds after which no case is begun")
    parser.add_argument("--no-backward", dest="backward", action="store_false", help="forward only")
    parser.add_argument("--no-overheads", dest="overheads", action="store_false", help="skip host and planner times")
    parser.add_argument("--commit", default="unknown", help="commit of the library, for the results")
    parser.add_argument("--merge", nargs="*", default=[], metavar="FILE", help="results whose other cases to add")
    parser.add_argument("--out", type=pathlib.Path, help="JSON file to write; a chart goes beside it")
    options = parser.parse_args()
    unknown = set(options.sets.split(",")) - set(cases.all_sets())
    if unknown:
        parser.error(f"unknown sets: {', '.join(sorted(unknown))}")
    return options


def main():
    options = arguments()
    start = time.monotonic()
    gpu = torch.cuda.get_device_name() if cases.DEVICE == "cuda" else "none"
    result = {"gpu": gpu, "commit": options.commit, "torch": torch.__version__, "ceilings": ceilings(options.reps)}
    print(json.dumps(result), flush=True)
    result["rows"] = []
    words, excluded, stopped = options.cases.split(","), collections.defaultdict(set), False
    try:
        for case in (case for name in options.sets.split(",") for case in cases.all_sets()[name]):
            if not any(word in case.name for word in words):
                continue
            if time.monotonic() - start > options.budget:
                print(f"out of time, left out: {case.set} {case.name}", flush=True)
                continue
            case.fill()
            run, failures = Run(case, options, excluded[case.set]), []
            attempt(failures, case.name, run.measure)
            result["rows"].append(run.row)
            run.notes += failures
            print(line(run.row), *(f"  note: {note}" for note in run.notes), sep="\n", flush=True)
            case.empty()
            torch.cuda.empty_cache()
        if options.overheads:
            failures = []
            result["overheads"] = attempt(failures, "overheads", lambda: overheads(options.library, options.reps))
            print(json.dumps(result["overheads"] or failures), flush=True)
    except Stop as reason:
        print(f"stopped: {reason}", flush=True)
        stopped = True
    merge(result, options.merge)
    result["summary"] = summarise(result["rows"])
    report(result)
    if options.backward and not any("bwd_vs_best" in row for row in result["rows"]):
        print("NOTE: no backward was compared: no peer has one")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=1) + "\n")
        try:
            import chart

            chart.draw(result, options.out.with_suffix(".png"))
        except ImportError as missing:
            print(f"no chart: {missing}")
    sys.exit(1 if stopped or any("fwd_ms" not in row["sides"].get("jfa", {}) for row in result["rows"]) else 0)


if __name__ == "__main__":
    main()
