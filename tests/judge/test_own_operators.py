"""Operators that a candidate defines by `torch.library`, in forks: the definitions are not taken back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.alone import run_with_lab

pytestmark = pytest.mark.slow

_HEAD = """
import torch
from kernellab.judge.candidate_process import define_own_operators_as_functions

define_own_operators_as_functions()
"""


def printed(folder: Path, text: str) -> str:
    process = run_with_lab(_HEAD + text, folder=folder)
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()


@pytest.mark.parametrize("define", ["custom_op", "triton_op"])
def test_an_operator_is_the_function_that_defines_it_by_all_of_its_names(tmp_path, define):
    text = f"""
@torch.library.{define}("own::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@twice.register_fake
def fake(x):
    return torch.empty_like(x)

@torch.library.register_fake("own::twice")
def other(x):
    return torch.empty_like(x)

twice.register_autograd(lambda context, gradient: gradient * 2, setup_context=None)
x = torch.ones(1)
print(*(int(call(x)) for call in (twice, torch.ops.own.twice, torch.ops.own.twice.default)), fake.__name__)
"""
    assert printed(tmp_path, text) == "2 2 2 fake"


def test_a_kernel_is_launched_without_a_wrapper_and_other_operators_stay(tmp_path):
    text = """
kernel = object()
print(torch.library.wrap_triton(kernel) is kernel, int(torch.ops.aten.add(torch.ones(1), 1)))
defined = torch.library.custom_op("own::later", lambda x: x, mutates_args=())
try:
    defined.no_such_attribute
except AttributeError as error:
    print(error)
"""
    assert printed(tmp_path, text).split() == ["True", "2", "no_such_attribute"]
