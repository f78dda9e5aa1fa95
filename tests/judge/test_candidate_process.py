"""What a candidate's process records of ``solve``, in forks: a pretended GPU is not taken back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.alone import run_with_lab

pytestmark = pytest.mark.slow

_RECORD = """
import json
import sys
from kernellab.judge.candidate_process import main

request, answers = json.loads(sys.argv[1]), []
main(json.dumps(request).encode(), answers.append)
print(answers[0].decode())
"""
_KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def twice(x, out, n, step, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets * step, mask=offsets < n) * 2, mask=offsets < n)


def solve(x):
    out = torch.empty(x.shape, device=x.device)
    n = x.numel()
    LAUNCH
    return out
"""
_FAMILIAR = "twice[(triton.cdiv(n, 32),)](x, out, n, x.stride(0), BLOCK=32, num_warps=2)"


def recorded(folder: Path, launch: str, stride: int = 1, offset: int = 0) -> list[dict[str, Any]]:
    """Return the two programs of a candidate whose ``solve`` launches so, for 48 elements with strides and offset."""
    (folder / "candidate.py").write_text(_KERNEL.replace("LAUNCH", launch))
    layout = {"dtype": "float32", "shape": [48], "stride": [stride], "offset": offset}
    inputs = [{"name": "x", "kind": "tensor", **layout}]
    request = {"file": "candidate.py", "target": "cuda:90", "cases": [{"inputs": inputs, "outputs": []}]}
    process = run_with_lab(_RECORD, json.dumps(request), folder=folder)
    assert process.returncode == 0, process.stderr
    (case,) = json.loads(process.stdout)["cases"]
    assert "error" not in case, case
    return list(case["programs"])


def launches(program: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for step in program["steps"] if step["operation"] == "launch"]


def test_a_launch_is_recorded_with_its_grid_options_and_numbers(tmp_path):
    first, second = recorded(tmp_path, _FAMILIAR)
    assert first == second
    (launch,) = launches(first)
    assert launch["variants"][0]["grid"] == [2, 1, 1]
    assert ["num_warps", 2] in launch["variants"][0]["options"]
    assert dict(launch["kwargs"])["n"] == 48


def test_strides_and_offset_are_those_of_the_layout(tmp_path):
    program, _ = recorded(tmp_path, _FAMILIAR, stride=2, offset=1)
    assert program["values"][dict(program["inputs"])["x"]][2:] == [[48], [2], 1]
    assert dict(launches(program)[0]["kwargs"])["step"] == 2


@pytest.mark.parametrize("launch", [_FAMILIAR, "compiled[(2, 1, 1)](x, out, n, x.stride(0), 32)"])
def test_a_kernel_that_is_warmed_up_first_is_launched_once(tmp_path, launch):
    warm = "compiled = twice.warmup(x, out, n, x.stride(0), BLOCK=32, grid=(1,), num_warps=2); compiled._init_handles()"
    program, _ = recorded(tmp_path, f"{warm}\n    {launch}")
    (step,) = launches(program)
    assert step["variants"] == launches(recorded(tmp_path, _FAMILIAR)[0])[0]["variants"]
    assert step["kwargs"] == launches(recorded(tmp_path, _FAMILIAR)[0])[0]["kwargs"]


def test_addresses_are_recorded_as_tensors_with_offsets_and_differ_in_no_run(tmp_path):
    launch = (
        "table = torch.tensor([x.data_ptr() + 4, 7, out.data_ptr()], device=x.device)\n"
        "    twice[(1,)](table, out.data_ptr(), n, 1, BLOCK=32)"
    )
    first, second = recorded(tmp_path, launch)
    assert first == second
    arguments = dict(launches(first)[0]["kwargs"])
    x, (out,) = dict(first["inputs"])["x"], first["outputs"]
    table, entries = arguments["x"]["addresses"]
    assert entries == [[0, x, 4], [2, out, 0]]
    assert arguments["out"] == {"addresses": [None, [[0, out, 0]]]}
    assert [table] == [index for index, _ in first["constants"]]


def test_what_memory_held_before_is_not_taken_for_addresses(tmp_path):
    launch = (
        "import ctypes\n"
        "    words = torch.empty(48, dtype=torch.int64, device=x.device)\n"
        "    ctypes.c_int64.from_address(words.data_ptr()).value = x.data_ptr()\n"
        "    twice[(1,)](words, out, n, 1, BLOCK=32)"
    )
    first, second = recorded(tmp_path, launch)
    assert first == second
    assert set(dict(launches(first)[0]["kwargs"])["x"]) == {"ref"}
