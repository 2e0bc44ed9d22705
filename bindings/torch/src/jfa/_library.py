"""Loads the operators, which lie beside this file."""

import pathlib

import torch  # First: the operators need its libraries.

torch.ops.load_library(pathlib.Path(__file__).with_name("libjfa_torch.so"))

_number = torch.ops.jfa.version()
__version__ = f"{_number // 10000}.{_number // 100 % 100}.{_number % 100}"
