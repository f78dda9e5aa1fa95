from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import kernellab
from kernellab.errors import WorkerDied
from kernellab.explain.profilers import (
    METRICS,
    ProfilerRefusal,
    Sampler,
    counters_from,
    is_of_profiler,
    metric_values,
    ncu_command,
    profile_of,
    remedy,
)
from kernellab.explain.verbs import reproducer_of
from kernellab.gpu.trial import GpuTrials
from kernellab.launch.calls import UserCall
from kernellab.registry.calls import compile_call, recorded_call
from kernellab.timing.launches import Implementation
from tests.explain.test_profile import frame, hatchet
from tests.kernels.cases import all_cases


class RecordedSampler(Sampler):
    """A sampler whose sessions bring the next of some texts, and which keeps how many launches each had."""

    def __init__(self, *texts: str | Exception) -> None:
        super().__init__(0, 1.0, GpuTrials(1.0))
        self.texts, self.rounds = iter(texts), []

    @contextmanager
    def session_of(self, implementation: Any, name: str) -> Iterator[Any]:
        def sample(rounds: int) -> str:
            self.rounds.append(rounds)
            text = next(self.texts)
            if isinstance(text, Exception):
                raise text
            return text

        yield sample


@pytest.fixture(scope="module")
def implementation(lab: kernellab.Lab) -> Implementation:
    case = next(iter(all_cases().values()))
    arguments = {**case.fresh_arguments(), **case.meta}
    return compile_call(lab.session(), UserCall(lab.bind(case.kernel), case.grid, (), arguments))


def text_of(kernel: str, **lines: int) -> str:
    frames = [frame(f"f.py:{name[1:]}@{kernel}", long_scoreboard=count) for name, count in lines.items()]
    return hatchet(frame(kernel, *frames))


@pytest.mark.slow
def test_sessions_end_once_the_leading_lines_are_apart(implementation: Implementation) -> None:
    clear = text_of(implementation.kernel.kernel, n1=90_000, n2=10_000)
    sampler = RecordedSampler(clear, clear, clear)
    profile = profile_of(implementation, sampler, "GPU", clock=itertools.count().__next__)
    assert (profile.sessions, len(sampler.rounds), profile.refused) == (2, 2, "")
    assert profile.instructions[0].address == 0


@pytest.mark.slow
def test_few_samples_ask_for_more_launches(implementation: Implementation) -> None:
    close = text_of(implementation.kernel.kernel, n1=30, n2=29, n3=28)
    sampler = RecordedSampler(*[close] * 6)
    profile_of(implementation, sampler, "GPU", clock=lambda: 0.0)
    assert sampler.rounds == sorted(sampler.rounds)
    assert sampler.rounds[-1] > 10 * sampler.rounds[0]


@pytest.mark.slow
def test_time_ends_sessions_that_tell_nothing(implementation: Implementation) -> None:
    close = text_of(implementation.kernel.kernel, n1=30, n2=29, n3=28)
    profile = profile_of(implementation, RecordedSampler(*[close] * 6), "GPU", clock=itertools.count(step=5).__next__)
    assert profile.sessions == 2


@pytest.mark.slow
def test_where_the_numbers_are_lost_the_lines_are_sampled(implementation: Implementation) -> None:
    name = implementation.kernel.kernel
    lost = hatchet(frame(name, long_scoreboard=50_000))
    plain = text_of(name, n7=90_000, n8=9_000)
    profile = profile_of(implementation, RecordedSampler(lost, lost, plain, plain), "GPU", clock=lambda: 0.0)
    assert [line.line for line in profile.lines] == [7, 8]
    assert profile.instructions == ()


@pytest.mark.slow
def test_a_refusal_is_a_sentence_and_no_error(implementation: Implementation) -> None:
    profile = profile_of(implementation, RecordedSampler(ProfilerRefusal("Not here.")), "GPU")
    assert (profile.refused, profile.samples) == ("Not here.", 0)


def test_no_sample_at_all_is_said(implementation: Implementation) -> None:
    texts = [hatchet(frame("something_else", wait=3))] * 6
    profile = profile_of(implementation, RecordedSampler(*texts), "GPU", clock=lambda: 0.0)
    assert profile.refused.startswith("No sample fell on the kernel")


def test_a_worker_that_dies_of_the_kernel_is_an_error(implementation: Implementation) -> None:
    with pytest.raises(WorkerDied):
        profile_of(implementation, RecordedSampler(WorkerDied("The kernel ended its worker.")), "GPU")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("Failed to execute cuptiPCSamplingEnable with error 35: ...", "NVreg_RestrictProfilingToAdminUsers=0"),
        ("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES", "CAP_SYS_ADMIN"),
        ("cuptiSubscribe failed with error 39", "Another profiler"),
        ("what():  Failed to execute cuptiPCSamplingStart with error 26", "Another profiler"),
        ("dlopen: libcupti.so: cannot open shared object file", "TRITON_CUPTI_LIB_PATH"),
        ("Proton is switched off; unset TRITON_PROTON_DISABLE", "unset TRITON_PROTON_DISABLE"),
        ("[PROTON] something new", "The profiler refused: [PROTON] something new;"),
    ],
)
def test_each_refusal_comes_with_its_remedy(words: str, says: str) -> None:
    assert says in remedy(words)


def test_a_process_that_the_profiler_ends_is_told_from_one_that_the_kernel_ends() -> None:
    assert is_of_profiler("terminate called\n  what():  Failed to execute cuptiPCSamplingStart with error 26")
    assert not is_of_profiler("copy ended its worker process (SIGSEGV): segmentation fault")


@pytest.mark.slow
def test_without_a_gpu_the_profile_says_so(lab: kernellab.Lab) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    case = next(iter(all_cases().values()))
    profile = lab.profile(case.kernel, case.grid, **case.fresh_arguments(), **case.meta)
    assert "No GPU" in profile.refused
    assert len(profile.frame) == 0


def test_the_reproducer_makes_the_launch_again(implementation: Implementation) -> None:
    text = reproducer_of(implementation.kernel_launch.function, implementation)
    assert f"def {implementation.kernel.kernel}(" in text
    compile(text, "reproducer.py", "exec")


def test_the_reproducer_of_a_kept_kernel_makes_its_recorded_launch_again(lab: kernellab.Lab) -> None:
    case = next(iter(all_cases().values()))
    kernel = lab.bind(case.kernel)
    lab.kernels.add(kernel)
    lab.run(kernel, case.grid, **case.fresh_arguments(), **case.meta)
    call = recorded_call(lab.session(), kernel.__name__)
    text = reproducer_of(call.kernel, compile_call(lab.session(), call))
    assert f"def {kernel.__name__}(" in text


@pytest.mark.gpu
def test_a_launch_is_sampled_by_instruction_on_a_gpu() -> None:
    case = next(iter(all_cases().values()))
    arguments = {
        name: value.cuda() if isinstance(value, torch.Tensor) else value
        for name, value in case.fresh_arguments().items()
    }
    with kernellab.Lab(store=":memory:") as lab:
        profile = lab.profile(case.kernel, case.grid, **arguments, **case.meta)
    assert profile.refused == "" or profile.refused.endswith(".")
    if not profile.refused:
        assert profile.instructions
        assert profile.instructions[0].text


PRINTED = """\
==PROF== Connected to process 4242
checks passed
==PROF== Disconnected from process 4242
"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","4242","k","dram__throughput.avg.pct_of_peak_sustained_elapsed","%","80.5"
"0","4242","k","dram__bytes_read.sum","byte","1,000,000"
"0","4242","k","dram__bytes_write.sum","byte","500,000"
"0","4242","k","sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_elapsed","%","n/a"
"0","4242","k","gpu__time_duration.sum","ns","12,500"
"1","4242","k","dram__throughput.avg.pct_of_peak_sustained_elapsed","%","84.5"
"1","4242","k","sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed","%","12"
"""


def test_values_are_read_by_metric_and_launch() -> None:
    values = metric_values(PRINTED)
    assert values["dram__bytes_read.sum"] == [1e6]
    assert values["dram__throughput.avg.pct_of_peak_sustained_elapsed"] == [80.5, 84.5]
    assert "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_elapsed" not in values


def test_counters_are_shares_of_what_the_hardware_can_do() -> None:
    counters = counters_from(metric_values(PRINTED))
    assert counters.dram == pytest.approx(0.825)
    assert counters.tensor == pytest.approx(0.12)
    assert counters.l2 is None
    assert counters.dram_bytes == 1_500_000
    assert counters.seconds == pytest.approx(12.5e-6)


@pytest.mark.parametrize("text", ["", "==ERROR== ERR_NVGPUCTRPERM", '"ID","Metric Name"\n"0"'])
def test_what_holds_no_metric_has_no_values(text: str) -> None:
    assert metric_values(text) == {}


def test_the_kernel_is_named_exactly_and_the_clocks_stay() -> None:
    line = ncu_command("ncu", Path("again.py"), "a.b")
    assert "regex:^(a\\.b)$" in line
    assert line[line.index("--clock-control") + 1] == "none"
    assert line[line.index("--metrics") + 1].split(",") == list(METRICS)
    assert line[-1] == "again.py"
