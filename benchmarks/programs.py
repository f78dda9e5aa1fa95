"""Captured programs beside `torch.compile`, on ten functions that launch kernels: peak memory, launches, and time.

Usage: python -m benchmarks.programs [--budget SECONDS] [NAME ...]. With names, only the functions whose names contain
one of them. Each is captured, exported, and the module run; and compiled by Inductor, with ``fullgraph=True``.

On a GPU, memory is what the allocator of torch had in use beside the inputs at most; launches are the kernels that
CUPTI saw in one run, and their time is the device's; the time of a run is the median of runs in turns, with a flushed
L2. Where the module is slower by more than 3 %, the last column says why. A budget ends the measuring of time.

Without a GPU, kernels are stood in for by an operator that does nothing and changes what the kernel changes, and memory
is what torch allocated on the CPU; there is no time. Inductor makes C++ of the rest of the function there.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import triton

import kernellab
from benchmarks.program_models import CHANGED, KERNELS, MODELS, Model
from kernellab.capture.program import Program

RESULT = Path(__file__).parent / "results" / "programs.txt"
GPU_SCALE = 32
ROUNDS = 40
SLOWER = 1.03

Run = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Ran:
    """What one run of a function took. ``time_us`` and ``device_us`` are None without a GPU."""

    peak_bytes: int
    launches: int | None = None
    device_us: float | None = None
    time_us: float | None = None


@dataclass(frozen=True, slots=True)
class Compared:
    """One function: the peak of its plan, those of its functional form without and with what it may write to, runs."""

    name: str
    planned_bytes: int
    functional_bytes: int
    donated_bytes: int
    module: Ran
    compiled: Ran

    @property
    def needs_more(self) -> bool:
        """Whether the module or its plan takes more memory than what Inductor made."""
        return max(self.planned_bytes, self.module.peak_bytes) > self.compiled.peak_bytes

    @property
    def why_slower(self) -> str:
        """Why the module is slower, or ""."""
        module, compiled = self.module, self.compiled
        if module.time_us is None or compiled.time_us is None or module.time_us <= SLOWER * compiled.time_us:
            return ""
        assert module.device_us is not None
        assert compiled.device_us is not None
        more = (module.launches or 0) - (compiled.launches or 0)
        if module.device_us > SLOWER * compiled.device_us:
            return f"{more} launches more, which Inductor fuses" if more > 0 else "kernels of torch take longer"
        return "the host: the GPU itself takes no longer"


def main() -> int:
    """Measure, print and keep the table; return 1 if some program needs more memory than what Inductor made."""
    words = sys.argv[1:]
    budget = float(words.pop(words.index("--budget") + 1)) if "--budget" in words else float("inf")
    names = [word for word in words if word != "--budget"]
    end = time.monotonic() + budget
    chosen = [model for model in MODELS if not names or any(name in model.name for name in names)]
    on_gpu = torch.cuda.is_available()
    rows = []
    with kernellab.Lab(store=":memory:") as lab, tempfile.TemporaryDirectory() as folder:
        bound = {name: lab.bind(kernel) for name, kernel in KERNELS.items()}
        for model in chosen:
            row = (compared_on_gpu if on_gpu else compared_on_cpu)(lab, model, bound, Path(folder), end)
            rows.append(row)
            print(f"{model.name}: {row.module} beside {row.compiled}", file=sys.stderr)
    text = table(rows, on_gpu=on_gpu)
    print(text)
    if not names:
        (RESULT if on_gpu else RESULT.with_stem("programs-cpu")).write_text(text)
    return int(any(row.needs_more for row in rows))


def captured(lab: kernellab.Lab, model: Model, bound: Mapping[str, Any], inputs: Mapping[str, Any]) -> Program:
    """Return the program of a function."""
    body = partial(model.body, bound)
    with lab.capture() as program:
        found = body(**inputs)
        program.returns(*(found if isinstance(found, tuple) else (found,)))
    return program


def _by_name(program: Program, given: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return inputs by the names that the program has for the members of ``inputs``."""
    return {name: given[name.removeprefix("inputs_")] for name in program.inputs}


def module_of(program: Program, folder: Path, name: str) -> ModuleType:
    """Export a program and import the module."""
    path = folder / f"{name.replace(' ', '_')}.py"
    program.export(path)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compiled_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function as Inductor compiles it, without graph breaks."""
    torch._dynamo.reset()
    compiled: Callable[..., Any] = torch.compile(function, fullgraph=True)
    return compiled


def compared_on_gpu(lab: kernellab.Lab, model: Model, bound: Mapping[str, Any], folder: Path, end: float) -> Compared:
    """Capture, export and compile a function, compare what both give, and measure both."""
    make = partial(model.make, "cuda", GPU_SCALE)
    program = captured(lab, model, bound, make())
    module = module_of(program, folder, model.name)
    vars(module)["MARKS"] = False  # for profilers: what is compiled by torch has none
    compiled = compiled_of(lambda **inputs: model.body(KERNELS, **inputs))
    given, wanted = make(), make()
    found = tuple(module.run(**_by_name(program, given)).values())
    expected = compiled(**wanted)
    for one, other in zip(found, expected if isinstance(expected, tuple) else (expected,), strict=False):
        torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2)
    for name, tensor in given.items():
        torch.testing.assert_close(tensor, wanted[name], rtol=2e-2, atol=2e-2)
    del found, expected, wanted
    taken = _by_name(program, given)
    runs: tuple[Run, Run] = (lambda: module.run(**taken), lambda: compiled(**given))
    for run in runs:
        run(), run()
    times = _times_us(runs) if time.monotonic() < end else (None, None)
    ran = [Ran(_peak_on_gpu(run), *_kernels(run), time_us) for run, time_us in zip(runs, times, strict=True)]
    return Compared(model.name, *_planned_bytes(program), *ran)


def _planned_bytes(program: Program) -> tuple[int, int, int]:
    """Return the peaks of a program, of its functional form, and of that where the changed inputs are donated."""
    functional, tape = program.functionalise(), program.tape
    changed = [tape.values[index].name for index in tape.mutated_inputs]
    return program.plan.peak_bytes, functional.plan.peak_bytes, functional.plan_with(changed).peak_bytes


def _peak_on_gpu(run: Run) -> int:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    kept = run()
    torch.cuda.synchronize()
    del kept
    return torch.cuda.max_memory_allocated() - before


def _kernels(run: Run) -> tuple[int, float]:
    """Return how many kernels one run launches, and how long they take on the device together, in microseconds."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        run()
        torch.cuda.synchronize()
    events = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    return len(events), sum(event.time_range.elapsed_us() for event in events)


def _times_us(runs: tuple[Run, ...]) -> tuple[float, ...]:
    """Return the medians of runs in turns, host included, with a flushed L2."""
    flush = torch.empty(1 << 28, dtype=torch.int8, device="cuda")
    taken: tuple[list[float], ...] = tuple([] for _ in runs)
    for _ in range(ROUNDS):
        for run, found in zip(runs, taken, strict=True):
            flush.zero_()
            torch.cuda.synchronize()
            begin, finish = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            run()
            finish.record()
            finish.synchronize()
            found.append(begin.elapsed_time(finish) * 1e3)
    return tuple(sorted(found)[len(found) // 2] for found in taken)


class StandIn:
    """Stands for a kernel on the CPU: it changes nothing, and says that it changes what the kernel changes."""

    def __init__(self, name: str, kernel: Any) -> None:
        self.names = tuple(kernel.arg_names)
        self.changed = CHANGED.get(name, ("out_ptr",))

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return self.launch

    def launch(self, *args: Any, **meta: Any) -> None:
        """Call the operator on the tensors among the arguments."""
        given = {**dict(zip(self.names, args, strict=False)), **meta}
        tensors = {name: value for name, value in given.items() if isinstance(value, torch.Tensor)}
        changed = [value for name, value in tensors.items() if name in self.changed]
        torch.ops.programs.touch(changed, [value for name, value in tensors.items() if name not in self.changed])


@cache
def stand_ins() -> dict[str, StandIn]:
    """Return a stand-in for each kernel; the operator is registered once."""

    def touch(changed: list[torch.Tensor], read: list[torch.Tensor]) -> None:
        return None

    schema = "(Tensor(a!)[] changed, Tensor[] read) -> ()"
    made = torch.library.custom_op("programs::touch", touch, mutates_args=("changed",), schema=schema)
    made.register_fake(lambda changed, read: None)
    return {name: StandIn(name, kernel) for name, kernel in KERNELS.items()}


def compared_on_cpu(lab: kernellab.Lab, model: Model, bound: Mapping[str, Any], folder: Path, end: float) -> Compared:
    """Capture, export and compile a function; measure the memory of both with stand-ins for the kernels."""
    make = partial(model.make, "cpu", 1)
    program = captured(lab, model, bound, make())
    module = module_of(program, folder, model.name)
    vars(module)["INTERPRETED"] = True  # as where it would run without a GPU
    for name, kernel in KERNELS.items():
        if hasattr(module, kernel.__name__):
            setattr(module, kernel.__name__, stand_ins()[name])
    kernels = stand_ins()
    compiled, given = compiled_of(lambda **inputs: model.body(kernels, **inputs)), make()
    taken = _by_name(program, given)
    ran = [Ran(_peak_on_cpu(run)) for run in (lambda: module.run(**taken), lambda: compiled(**given))]
    return Compared(model.name, *_planned_bytes(program), *ran)


def _peak_on_cpu(run: Run) -> int:
    """Return the most bytes that torch had allocated in a run beyond those from before."""
    run()
    run()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, acc_events=True
    ) as profile:
        kept = run()
    del kept
    results = profile.profiler
    assert results is not None
    events = [event for event in results.kineto_results.events() if event.name() == "[memory]"]
    total = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        total += event.nbytes()
        peak = max(peak, total)
    return peak


def table(rows: list[Compared], *, on_gpu: bool) -> str:
    """Return the rows as text."""
    device = torch.cuda.get_device_name() if on_gpu else "CPU, stand-ins for the kernels"
    lines = [f"{device}, triton {triton.__version__}, torch {torch.__version__}, Python {sys.version.split()[0]}"]
    lines.append(
        "peaks in bytes beside the inputs: as planned for the program, for its functional form, and for that with"
    )
    lines.append(
        "its changed inputs donated; as measured of its module and of what Inductor made; kernels: launched in one"
    )
    lines.append("run; device us: all of them together; run us: with the host")
    head = f"{'function':<22}{'plan':>13}{'functional':>13}{'donated':>13}{'module':>13}{'Inductor':>13}"
    more = f"{'kernels':>9}{'Inductor':>9}{'device us':>10}{'Inductor':>9}{'run us':>9}{'Inductor':>9}  slower, why"
    lines.append(head + more if on_gpu else head)
    for row in rows:
        line = f"{row.name:<22}{row.planned_bytes:>13,}{row.functional_bytes:>13,}{row.donated_bytes:>13,}"
        line += f"{row.module.peak_bytes:>13,}{row.compiled.peak_bytes:>13,}"
        lines.append(f"{line}{_measured(row) if on_gpu else ''}{'  MORE' if row.needs_more else ''}")
    wrong = sum(row.needs_more for row in rows)
    lines.append(f"asked: never more memory than Inductor; {wrong} of {len(rows)} need more")
    return "\n".join(lines) + "\n"


def _measured(row: Compared) -> str:
    module, compiled = row.module, row.compiled
    times = "".join(f"{'-' if ran.time_us is None else f'{ran.time_us:.1f}':>9}" for ran in (module, compiled))
    line = f"{module.launches:>9}{compiled.launches:>9}{module.device_us:>10.1f}{compiled.device_us:>9.1f}"
    return f"{line}{times}  {row.why_slower}"


if __name__ == "__main__":
    sys.exit(main())
