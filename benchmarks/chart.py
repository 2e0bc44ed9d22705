#!/usr/bin/env python3
"""Draws results of peers.py: how many times as fast as the best peer jfa is, case by case.

Usage: python3 benchmarks/chart.py RESULTS.json CHART.png
"""

import json
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

COLOURS = {"jagged": "#2f6db3", "d64": "#3f9c6d", "dense": "#8a6db8", "nq64": "#c9822b", "self": "#b8484f"}
PHASES = {"fwd": "forward", "bwd": "backward, with the sum of dQ over the batch"}


def draw(result, path):
    """One panel a phase that was compared; a tick above each bar is where the roofline lies."""
    phases = [key for key in PHASES if any(f"{key}_vs_best" in row for row in result["rows"])]
    if not phases:
        return
    figure, panels = pyplot.subplots(
        len(phases), 1, figsize=(max(8, 0.34 * len(result["rows"]) + 2), 4.6 * len(phases)), squeeze=False)
    for key, panel in zip(phases, panels[:, 0]):
        rows = [row for row in result["rows"] if f"{key}_vs_best" in row]
        ratios = [row[f"{key}_vs_best"] for row in rows]
        limits = [ratio / row[f"{key}_roofline"] for ratio, row in zip(ratios, rows)]
        panel.bar(range(len(rows)), ratios, color=[COLOURS.get(row["set"], "gray") for row in rows], width=0.75)
        panel.scatter(range(len(rows)), limits, marker="_", s=90, color="black", label="roofline")
        panel.axhline(1, color="black", linewidth=1, linestyle="--", label="best peer")
        for x, ratio in enumerate(ratios):
            panel.text(x, ratio + 0.03, f"{ratio:.2f}", ha="center", va="bottom", fontsize=7)
        names = [row["case"].removeprefix("B768 H4 ") for row in rows]
        panel.set_xticks(range(len(rows)), names, rotation=60, ha="right", fontsize=7)
        panel.set_xlim(-0.7, len(rows) - 0.3)
        panel.set_ylim(0, 1.08 * max(ratios + [1.0] + [limit for limit in limits if limit < 2.5 * max(ratios)]))
        panel.set_ylabel("best peer's time / jfa's time")
        summary = [
            f"{name} {entry[f'{key}_vs_best']:.2f}"
            for name, entry in result["summary"].items()
            if entry[f"{key}_vs_best"] is not None
        ]
        panel.set_title(f"{PHASES[key]}: geometric means {', '.join(summary)}", fontsize=9)
        for name in dict.fromkeys(row["set"] for row in rows):
            panel.bar(0, 0, color=COLOURS.get(name, "gray"), label=name)
        panel.legend(loc="upper right", fontsize=7, ncols=2)
    figure.suptitle(f"jfa against the best of FlashAttention-4, cuDNN and FlashAttention-2 on one {result['gpu']}")
    figure.tight_layout()
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    draw(json.loads(pathlib.Path(sys.argv[1]).read_text()), sys.argv[2])
