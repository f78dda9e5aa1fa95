"""Profiles a launch: Proton samples it in a worker of its own, Nsight Compute counts it in a child process.

Sessions repeat until the leading lines are distinct. For counters, a generated file repeats the launch under ``ncu``.
"""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import dropwhile
from pathlib import Path
from statistics import median

from kernellab.compile.disassembly import DISASSEMBLY
from kernellab.compile.types import Compiled
from kernellab.errors import WorkerDied, timeout_text
from kernellab.explain import proton
from kernellab.explain.code_lines import machine_code
from kernellab.explain.profile import Counters, Profile, SamplingSession, are_distinct, samples_by_place, samples_of
from kernellab.explain.proton import NoLineTable, number_instructions
from kernellab.ir.lines import StageLine
from kernellab.launch.arguments import CannotExport
from kernellab.launch.bound_launch import Trials
from kernellab.timing.bench import BenchOptions
from kernellab.timing.gpu_bench import worker_bench
from kernellab.timing.launches import Implementation
from kernellab.workers.scratch import Scratch
from kernellab.workers.worker import Job

_START_S = 120.0
_LEAST_SESSIONS, _MOST_SESSIONS = 2, 6
_ROUNDS = 10
_MOST_ROUNDS = 400
_ENOUGH_SAMPLES = 20_000
_WANTED_S = 3.0


class ProfilerRefusal(Exception):
    """Samples or counters are not available; the text says why, with a remedy."""


Sample = Callable[[int], str]
"""Launches this often in one session; returns the profiler's output."""


@dataclass(slots=True)
class Sampler:
    """A worker that samples on one device; CUPTI has one client a process, and may end it.

    It is forked where the workers of ``trials`` are forked.
    """

    device: int
    timeout_s: float
    trials: Trials

    @contextmanager
    def session_of(self, implementation: Implementation, name: str) -> Iterator[Sample]:
        """Yield a function that samples launches of an implementation; the worker ends with the context.

        Every session loads the kernel again, since the profiler reads its lines on loading.
        """
        trials = self.trials.apart(self.timeout_s)
        worker = trials.worker(self.device)

        def sample(rounds: int) -> str:
            opened = worker.run(Job(proton.open_session, None, "Starting the profiler"), _START_S)
            if opened.refused:
                raise ProfilerRefusal(remedy(opened.refused))
            options = BenchOptions(name, self.timeout_s, compares=False)
            with closing(worker_bench(options, trials, stays=True)) as bench:
                bench.interleave([implementation], rounds)
            return worker.run(Job(proton.close_session, opened, f"Reading the samples of {name}"), _START_S)

        try:
            trials.wait_ready(self.device)  # the profiler needs Triton's driver to be active
            yield sample
        except CannotExport as exc:
            raise ProfilerRefusal(f"{name} cannot be sampled: {exc}.") from exc
        except WorkerDied as exc:
            if not is_of_profiler(text := f"{exc.message} {exc.detail}"):
                raise
            raise ProfilerRefusal(remedy(text)) from exc
        finally:
            trials.close()


def profile_of(
    implementation: Implementation, sampler: Sampler, device: str, clock: Callable[[], float] = time.monotonic
) -> Profile:
    """Sample a launch of a compiled kernel; a profile without samples says why.

    Raises:
        KernellabError: the launch fails.
    """
    compiled, launch = implementation.kernel, implementation.kernel_launch
    empty = Profile(compiled.kernel, str(compiled.target), device, launch.grid, compiled=compiled)
    start_s = clock()
    try:
        with numbered_binary(compiled) as (binary, by_instruction):
            numbered = replace(implementation, compiled=binary)
            with sampler.session_of(numbered, compiled.kernel) as sample:
                sass = machine_code(compiled) or ()
                profile = _sample_sessions(empty, sample, sass, clock, by_instruction=by_instruction)
        if profile.samples and by_instruction and not profile.instructions:  # CUPTI did not accept the line table
            with sampler.session_of(implementation, compiled.kernel) as sample:
                profile = _sample_sessions(empty, sample, (), clock, by_instruction=False)
    except ProfilerRefusal as exc:
        return replace(empty, refused=str(exc))
    return replace(profile, seconds=clock() - start_s)


def _sample_sessions(
    empty: Profile, sample: Sample, sass: tuple[StageLine, ...], clock: Callable[[], float], *, by_instruction: bool
) -> Profile:
    """Sample in sessions until the leading lines are distinct, or until the time is up."""
    sessions: list[SamplingSession] = []
    launches, rounds, profile = 0, _ROUNDS, empty
    start_s = clock()
    for number in range(1, _MOST_SESSIONS + 1):
        sessions.append(samples_of(sample(rounds), empty.kernel))
        launches += rounds
        lines, instructions = samples_by_place(sessions, sass, empty.kernel, by_instruction=by_instruction)
        profile = replace(empty, lines=lines, instructions=instructions, launches=launches, sessions=number)
        if number >= _LEAST_SESSIONS and (
            are_distinct([line.share for line in lines]) or clock() - start_s > _WANTED_S
        ):
            break
        if profile.samples < _ENOUGH_SAMPLES * number:
            rounds = min(_MOST_ROUNDS, rounds * 4)
    return profile if profile.samples else replace(profile, refused=_NO_SAMPLES)


_NO_SAMPLES = "No sample fell on the kernel: it is too short; profile a larger launch, or look at what explain says."


@contextmanager
def numbered_binary(compiled: Compiled) -> Iterator[tuple[Compiled, bool]]:
    """Yield a kernel with a numbered line table, and True; the unchanged kernel and False if it has no line table."""
    try:
        binary = number_instructions(compiled.binary)
    except NoLineTable:
        yield compiled, False
        return
    with Scratch() as folder:
        shutil.copytree(compiled.folder, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(DISASSEMBLY))
        (folder / compiled.binary_path.name).write_bytes(binary)
        yield replace(compiled, folder=folder), True


_REMEDIES = {
    ("INSUFFICIENT_PRIVILEGES", "error 35", "VIRTUALIZED_DEVICE_INSUFFICIENT"): (
        "The driver lets only administrators read its counters; load it with NVreg_RestrictProfilingToAdminUsers=0 "
        "(developer.nvidia.com/ERR_NVGPUCTRPERM), or run in a container with CAP_SYS_ADMIN."
    ),
    ("MULTIPLE_SUBSCRIBERS", "error 39", "HARDWARE_BUSY", "error 26"): (
        "Another profiler has CUPTI in this process or on this GPU; end it (nsys, ncu, torch.profiler) and try again."
    ),
    ("libcupti", "cannot open shared object", "No module named", "cannot import"): (
        "This Triton finds no CUPTI; install one built with Proton, or set TRITON_CUPTI_LIB_PATH to its folder."
    ),
    ("NOT_SUPPORTED", "error 27", "NOT_COMPATIBLE", "not compatible"): (
        "CUPTI cannot sample on this GPU with this driver; take a Triton whose CUPTI is as new as the driver."
    ),
    ("TRITON_PROTON_DISABLE",): "Proton is switched off; unset TRITON_PROTON_DISABLE.",
}


def is_of_profiler(words: str) -> bool:
    """Whether the last words of a process name the profiler: ``cuptiPCSamplingStart``, ``PROTON``."""
    return "cupti" in words.lower() or "PROTON" in words


def remedy(words: str) -> str:
    """Return a sentence with the reason and the remedy for CUPTI's error text."""
    for signs, sentence in _REMEDIES.items():
        if any(sign in words for sign in signs):
            return sentence
    line = next((line.strip() for line in words.splitlines() if "PROTON" in line or "CUPTI" in line), words.strip())
    return f"The profiler refused: {line.rstrip('.')}; explain says what is known without samples."


_PEAK = ".avg.pct_of_peak_sustained_elapsed"
_DRAM, _L2, _MULTIPROCESSOR = f"dram__throughput{_PEAK}", f"lts__throughput{_PEAK}", f"sm__throughput{_PEAK}"
# Architectures name their tensor pipes differently; what one lacks, it reports as n/a.
_TENSOR = tuple(
    f"sm__{name}{_PEAK}"
    for name in ("pipe_tensor_cycles_active", "pipe_tensor_op_hmma_cycles_active", "inst_executed_pipe_tensor")
)
_BYTES = ("dram__bytes_read.sum", "dram__bytes_write.sum")
_TIME = "gpu__time_duration.sum"
METRICS = (_DRAM, _L2, _MULTIPROCESSOR, *_TENSOR, *_BYTES, _TIME)
_LAUNCHES = 3
_PLACES = ("ncu", "/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/ncu")
_NO_NCU = (
    "There is no Nsight Compute here; install it (the package nsight-compute of CUDA), so that ncu is on the path."
)

Values = Mapping[str, Sequence[float]]


def counters_of(file: Path, kernel: str, timeout_s: float) -> Counters:
    """Return the hardware counters of the first launches of ``kernel`` that a Python file makes.

    Raises:
        ProfilerRefusal: there is no ``ncu``, or the driver keeps its counters to itself.
    """
    ncu = next((path for place in _PLACES if (path := shutil.which(place))), None)
    if ncu is None:
        raise ProfilerRefusal(_NO_NCU)
    command = ncu_command(ncu, file, kernel)
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s)
    except subprocess.TimeoutExpired as exc:
        raise ProfilerRefusal(f"{timeout_text('Nsight Compute', timeout_s)}; allow it more by timeout_s.") from exc
    values = metric_values(done.stdout)
    if not values:
        raise ProfilerRefusal(_refusal_text(f"{done.stdout}\n{done.stderr}"))
    return counters_from(values)


def ncu_command(ncu: str, file: Path, kernel: str) -> list[str]:
    """Return the command line of ``ncu``; it leaves the clocks as they are."""
    options = ["--csv", "--print-units", "base", "--clock-control", "none", "--metrics", ",".join(METRICS)]
    chosen = ["-k", f"regex:^({re.escape(kernel)})$", "-c", str(_LAUNCHES)]
    return [ncu, *options, *chosen, sys.executable, str(file)]


def metric_values(text: str) -> Values:
    """Return the values of each metric, one per launch, from the output of ``ncu --csv``; n/a is left out."""
    values: dict[str, list[float]] = {}
    rows = dropwhile(lambda line: not line.startswith('"ID"'), text.splitlines())
    for row in csv.DictReader(rows):
        with suppress(KeyError, ValueError):
            value = float(row["Metric Value"].replace(",", ""))
            values.setdefault(row.get("Metric Name") or "", []).append(value)
    return values


def counters_from(values: Values) -> Counters:
    """Return the counters from metrics: the median over the launches."""
    medians = {name: median(counted) for name, counted in values.items() if counted}
    shares = {name: value / 100 for name, value in medians.items()}
    moved = [medians[name] for name in _BYTES if name in medians]
    return Counters(
        dram=shares.get(_DRAM),
        l2=shares.get(_L2),
        tensor=max((shares[name] for name in _TENSOR if name in shares), default=None),
        multiprocessor=shares.get(_MULTIPROCESSOR),
        dram_bytes=int(sum(moved)) if moved else None,
        seconds=medians[_TIME] / 1e9 if _TIME in medians else None,
    )


def _refusal_text(printed: str) -> str:
    if "ERR_NVGPUCTRPERM" in printed:
        return remedy("INSUFFICIENT_PRIVILEGES")
    errors = [line.strip(" =") for line in printed.splitlines() if "==ERROR==" in line or "Error" in line]
    return f"Nsight Compute counted nothing: {errors[-1] if errors else 'it saw no launch of the kernel'}."
