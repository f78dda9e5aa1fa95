"""Cells that launch kernels which change what they read: what is shown of them starts from the values before."""

from __future__ import annotations

import re

import pytest
import torch

from kernellab.errors import CheckFailed, UsageError
from kernellab.launch import recording
from tests.notebook.conftest import Notebook

COUNT_UP = """
@triton.jit
def count_up(c_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(c_ptr + at, tl.load(c_ptr + at) + 1000)
"""
TUNED = "@triton.autotune(configs=[triton.Config({'BLOCK': block}) for block in (16, 8)], key=[])" + COUNT_UP
LAUNCH = "\ncount_up[(1,)](c, BLOCK=16)"
GATHER = """
@triton.jit
def gather(x_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    place = tl.load(index_ptr + at)
    tl.store(out_ptr + at, tl.load(x_ptr + place))
    tl.store(index_ptr + at, place * 32 % n + place // (n // 32))

gather[(64,)](x, index, out, 65536, BLOCK=1024)
"""


@pytest.fixture
def counted(notebook: Notebook) -> Notebook:
    notebook.names["c"] = torch.arange(16)
    return notebook


def texts(shown: list[dict[str, object]]) -> str:
    return "\n".join(str(each.get("text/plain", "")) for each in shown)


@pytest.mark.slow
def test_a_launch_is_explained_with_the_addresses_that_it_had_loaded(notebook: Notebook) -> None:
    notebook.names.update(x=torch.rand(65536), index=torch.arange(65536), out=torch.zeros(65536))
    ran = notebook.triton(GATHER, "--why")
    assert ran.error is None
    assert notebook.names["index"][:3].tolist() == [0, 32, 64]
    before, after = (explained(notebook, index) for index in ("torch.arange(65536)", "index"))
    assert before != after
    assert before in texts(ran.shown)
    assert notebook.names["index"][:3].tolist() == [0, 32, 64]


def explained(notebook: Notebook, index: str) -> str:
    """Return what limits a launch, and its estimated time."""
    ran = notebook.run(f"why = %triton_why gather[(64,)](x, {index}, out, 65536, BLOCK=1024)")
    assert ran.error is None
    text = str(notebook.names["why"])
    return text[text.index("Limited by") : text.index("; roofline bound")]


@pytest.mark.slow
def test_sliders_over_a_launch_are_checked_with_the_values_before_it(counted: Notebook) -> None:
    ran = counted.triton(COUNT_UP + LAUNCH, '--explore --check "c + 1000"')
    assert ran.error is None
    assert "outputs: match (matches c + 1000" in texts(ran.shown)
    assert counted.names["c"].tolist() == list(range(1000, 1016))
    ran = counted.triton(COUNT_UP + LAUNCH, '--explore --check "c + 8"')
    assert isinstance(ran.error, CheckFailed)
    assert "outputs: wrong" in texts(ran.shown)
    assert "c_ptr differs from c + 8" in texts(ran.shown)


@pytest.mark.slow
def test_configs_are_checked_with_the_values_before_the_launch(counted: Notebook) -> None:
    ran = counted.triton(f"{TUNED}\ncount_up[(1,)](c)", '--tune --check "c + 1000"')
    assert ran.error is None
    (tuning, *_) = texts(ran.shown).partition("wrong: BLOCK=8")
    assert "predicted for H100 (no GPU); best that agrees with the reference is BLOCK=16" in tuning
    assert re.search(r"BLOCK=16 .* not_timed\n", tuning)
    assert re.search(r"BLOCK=8 .* 100% +wrong\n", tuning)
    assert counted.names["c"].tolist() == list(range(1000, 1016))


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--tune", "--explore"])
def test_a_check_of_several_launches_together_is_refused_for_single_ones(counted: Notebook, option: str) -> None:
    ran = counted.triton(f"{TUNED}\ncount_up[(1,)](c)\ncount_up[(1,)](c)", f'{option} --check "c + 2000"')
    assert isinstance(ran.error, UsageError)
    assert f"{option} compares single launches" in str(ran.error)
    assert "wrong" not in texts(ran.shown)


def test_without_a_gpu_the_card_of_an_autotuned_kernel_says_that_its_config_is_not_tuned(counted: Notebook) -> None:
    shown = " ".join(texts(counted.triton(f"{TUNED}\ncount_up[(1,)](c)").shown).split())
    assert "The config is the first of 2 that fits, not tuned; %triton_tune count_up tunes without a GPU." in shown
    one = TUNED.replace("(16, 8)", "(16,)")
    assert "not tuned" not in texts(counted.triton(f"{one}\ncount_up[(1,)](c)").shown)


ACCUMULATOR = """
@triton.autotune(configs=[triton.Config({"BLOCK": 64})], key=[], reset_to_zero=["total_ptr"])
@triton.jit
def total(x_ptr, total_ptr, BLOCK: tl.constexpr):
    tl.atomic_add(total_ptr, tl.sum(tl.load(x_ptr + tl.arange(0, BLOCK))))

total[(1,)](x, c)
"""


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--tune", "--explore"])
def test_a_reference_sees_zeros_in_what_each_config_finds_zero(counted: Notebook, option: str) -> None:
    counted.names.update(x=torch.ones(64), c=torch.full((1,), 5.0))
    ran = counted.triton(ACCUMULATOR, f'{option} --check "c + x.sum()"')
    assert ran.error is None
    shown = texts(ran.shown)
    assert "wrong" not in shown
    assert "matches c + x.sum()" in shown
    assert counted.names["c"].item() == 69.0


@pytest.mark.slow
@pytest.mark.parametrize(("option", "said"), [("--why", "--why: count_up updates c_ptr in place"), ("--tune", "")])
def test_what_is_too_large_to_be_kept_is_said(
    counted: Notebook, monkeypatch: pytest.MonkeyPatch, option: str, said: str
) -> None:
    monkeypatch.setattr(recording, "_MOST_BYTES_OF_ONE", 8)
    check = ' --check "c + 1000"' if option == "--tune" else ""
    ran = counted.triton(f"{TUNED}\ncount_up[(1,)](c)", option + check)
    assert isinstance(ran.error, UsageError)
    assert (said or "--check: count_up updates c_ptr in place") in str(ran.error)
    assert counted.names["c"].tolist() == list(range(1000, 1016))
