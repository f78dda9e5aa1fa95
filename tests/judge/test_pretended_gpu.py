"""The GPU that a candidate's process pretends to have, asked in forks: the pretence is not taken back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.alone import run_with_lab

pytestmark = pytest.mark.slow

_HEAD = """
import torch
import triton
from types import ModuleType
from kernellab.judge.pretended_gpu import pretended_gpu

candidate = ModuleType("candidate")
candidate.__dict__.update(torch=torch, triton=triton)


def ask(expression):
    return eval(expression, candidate.__dict__)


with pretended_gpu("cuda:90", "candidate"):
"""


def printed(folder: Path, *lines: str) -> str:
    """Return what the lines print in a process with a pretended GPU."""
    process = run_with_lab(_HEAD + "".join(f"    {line}\n" for line in lines), folder=folder)
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()


ANSWERS = {
    "torch.cuda.is_available()": "True",
    "torch.cuda.device_count()": "1",
    "torch.cuda.get_device_capability()": "(9, 0)",
    "torch.cuda.get_device_properties('cuda').multi_processor_count": "132",
    "torch.cuda.get_device_name(0)": "NVIDIA H100",
    "torch.cuda.is_current_stream_capturing()": "False",
    "triton.runtime.driver.active.get_current_target().arch": "90",
    "triton.runtime.driver.active.get_active_torch_device()": "cuda:0",
    "torch.empty(2, device='cuda').is_cuda": "True",
    "torch.empty(2, device=torch.device('cuda', 0)).device": "cuda:0",
    "torch.empty(2).to('cuda').device.type": "cuda",
    "torch.empty(2).cuda().get_device()": "0",
    "torch.zeros(2).to(0).is_cpu": "False",
    "torch.full((2,), 0, device=0).tolist()": "[0, 0]",
    "torch.ones(2).to(torch.float16).dtype": "torch.float16",
}


def test_a_candidate_that_asks_for_a_gpu_is_told_of_an_h100(tmp_path):
    lines = printed(tmp_path, *(f"print(ask({expression!r}))" for expression in ANSWERS)).splitlines()
    assert dict(zip(ANSWERS, lines, strict=True)) == ANSWERS


def test_code_of_others_sees_the_memory_where_it_lies(tmp_path):
    text = printed(tmp_path, "x = ask(\"torch.ones(3, device='cuda')\")", "print(x.device, x.is_cuda, x.sum().item())")
    assert text == "cpu False 3.0"


def test_streams_and_events_order_nothing_and_measure_nothing(tmp_path):
    lines = (
        "stream = ask('torch.cuda.Stream()')",
        "stream.wait_stream(torch.cuda.current_stream())",
        "with torch.cuda.stream(stream), torch.cuda.device(0), stream:",
        "    event = stream.record_event()",
        "torch.cuda.current_stream().wait_event(event)",
        "torch.cuda.synchronize(), event.synchronize(), stream.synchronize()",
        "print(event.query(), stream.query(), torch.cuda.Event().elapsed_time(event), stream.cuda_stream)",
    )
    assert printed(tmp_path, *lines) == "True True 0.0 0"
