"""benchmarks/operator_overhead.py, as far as a CPU goes: its sides compute the same, and wrong ones are left out."""

import json
import pathlib
import sys

import pytest
import torch

BENCHMARKS = pathlib.Path(__file__).resolve().parents[3] / "benchmarks"


def reference_varlen(case):
    """PyTorch's own attention, sequence by sequence, in place of a peer that needs a GPU."""

    def attend(q, k, v):
        parts = []
        for b in range(case.batch):
            queries = q[case.rows_of_o(b)].transpose(0, 1)
            keys, values = (t[case.rows_of_kv(b)].transpose(0, 1) for t in (k, v))
            causal = not case.broadcast
            o = torch.nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=causal)
            parts.append(o.transpose(0, 1))
        return torch.cat(parts)

    return attend


@pytest.fixture
def overhead(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import cases
    import operator_overhead

    monkeypatch.setattr(cases, "DEVICE", "cpu")
    monkeypatch.setattr(cases, "uniform", lambda *_: [3, 17, 5])
    yield operator_overhead
    for name in ("operator_overhead", "cases", "sides", "jfa_capi"):
        sys.modules.pop(name, None)


def test_command_line(overhead, monkeypatch, tmp_path, capsys):
    out = tmp_path / "operator.json"
    words = ["--device", "cpu", "--cases", "self,broadcast", "--layers", "1", "--steps", "2", "--repeats", "1"]
    monkeypatch.setattr(sys, "argv", ["operator_overhead.py", *words, "--out", str(out)])
    with pytest.raises(SystemExit) as ended:
        overhead.main()
    assert ended.value.code == 0, capsys.readouterr().out
    result = json.loads(out.read_text())
    assert len(result["rows"]) == 2 * 2 * 2 and not result["left_out"]
    assert all(0 < row["host_us_min"] <= row["host_us"] for row in result["rows"])


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("name", ["self", "broadcast"])
def test_peers_are_checked(overhead, monkeypatch, name, wrong):
    case = overhead.small_cases()[name]
    call = lambda case: reference_varlen(case) if not wrong else lambda q, k, v: reference_varlen(case)(q, 0 * k, v)
    monkeypatch.setattr(overhead.sides.FlashAttention2, "call", staticmethod(call))
    case.fill()
    side = overhead.VarlenAttn(case)
    for phase in overhead.PHASES:
        results = overhead.step(side, phase, 2)()
        assert len(results) == (1 if phase == "forward" else 4)
        if wrong:
            with pytest.raises(ValueError, match="relative error"):
                overhead.check(case, results)
        else:
            overhead.check(case, results)
