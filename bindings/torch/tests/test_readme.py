"""The program in the README prints what the README says."""

import contextlib
import io
import pathlib
import re

README = pathlib.Path(__file__).resolve().parents[3] / "README.md"


def test_readme():
    section = README.read_text().split("## Use it from PyTorch")[1].split("\n## ")[0]
    program = re.search(r"```python\n(.*?)```", section, re.DOTALL)[1]
    wanted = re.search(r"```text\n(.*?)```", section, re.DOTALL)[1]
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(program, {})
    assert output.getvalue() == wanted
