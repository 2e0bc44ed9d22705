"""The shared library of the operators."""

import pathlib
import re
import shutil
import subprocess

import pytest
import torch

import jfa


def test_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+", jfa.__version__)


@pytest.mark.skipif(shutil.which("nm") is None, reason="needs nm, of the binutils")
def test_only_the_stable_abi_is_used():
    """C++ names of PyTorch change from version to version; its C functions do not."""
    path = pathlib.Path(jfa.__file__).with_name("libjfa_torch.so")
    lines = subprocess.run(["nm", "-D", "--undefined-only", path], check=True, capture_output=True, text=True).stdout
    names = [line.split()[-1] for line in lines.splitlines()]
    # Names with a version are those of the C and C++ runtimes; the others are weak and belong to the compiler.
    foreign = [name for name in names if "@" not in name and not name.startswith(("_ITM_", "__gmon_start__"))]
    unstable = [name for name in foreign if not name.startswith(("aoti_torch_", "torch_", "jfa_"))]
    # Standard C++ templates instantiated elsewhere have no version; they are none of PyTorch's.
    assert [name for name in unstable if not name.startswith(("_ZNSt", "_ZNKSt", "_ZSt"))] == []
    assert any(name.startswith("aoti_torch_") for name in foreign)


def test_every_operator_is_registered():
    for name in ("forward", "backward", "combine"):
        for key in ("CPU", "CUDA", "Autograd", "AutocastCPU", "AutocastCUDA"):
            if name == "forward" or not key.startswith("Auto"):
                assert torch._C._dispatch_has_kernel_for_dispatch_key(f"jfa::{name}", key), (name, key)
