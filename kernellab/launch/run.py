"""Results of launches outside the notebook's process: checked runs on the CPU, trials on a GPU.

`kernellab.interpreter` makes the former, `kernellab.gpu.trial` the latter.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kernellab.compile.argument_values import ArgumentValue
from kernellab.compile.types import Compiled
from kernellab.display import Drawable
from kernellab.errors import RunError, plural, warn_user
from kernellab.ir.effects import NO_EFFECTS, Effects
from kernellab.launch.arguments import Launch, bypass_modes, memory_of
from kernellab.launch.calls import Grid3
from kernellab.launch.memory import Copier, Copies, device_of, size_bytes, with_reached
from kernellab.launch.poison import bits_of
from kernellab.launch.recorded_values import NonFiniteEvent, RecordedValue, RecordRequest
from kernellab.source import Binding, Closure
from kernellab.target import MULTIPROCESSORS
from kernellab.workers.worker import Failure


class FindingKind(StrEnum):
    """The kinds of findings of a checked run."""

    OUT_OF_BOUNDS = "out_of_bounds"
    OUTSIDE_VIEW = "outside_view"
    UNINITIALISED_READ = "uninitialised_read"
    RACE = "race"
    ADDRESS_OVERFLOW = "address_overflow"
    OVERLAP = "overlap"
    FALSE_PROMISE = "false_promise"
    UNDEFINED_VALUE = "undefined_value"


class Severity(StrEnum):
    """How bad a finding is: the run fails, its results may be wrong, or it is worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a checked run saw. ``program`` is a program id (x, y, z); ``line`` a line of ``file``."""

    kind: FindingKind
    severity: Severity
    argument: str | None
    file: str | None
    line: int | None
    program: tuple[int, int, int]
    detail: str


def finding_words(finding: Finding) -> str:
    """A finding in words, with argument, line and program."""
    place = [finding.kind.value.replace("_", " ")]
    if finding.argument:
        place.append(f"of {finding.argument}")
    if finding.line is not None:
        place.append(f"in line {finding.line}")
    place.append(f"by program {finding.program}")
    return f"{' '.join(place)}: {finding.detail}"


@dataclass(frozen=True, slots=True)
class LaneFill:
    """A value for the masked lanes of the loads in a line, in place of the usual one."""

    file: str
    line: int
    value: float


@dataclass(frozen=True, slots=True)
class Watch:
    """A request for `ElementAccesses`; ``fill`` changes the values of some masked lanes."""

    fill: LaneFill | None = None


@dataclass(frozen=True, slots=True)
class MaskedLoad:
    """A load of ``argument`` with masked lanes; ``has_other`` is whether it sets their value."""

    argument: str
    file: str
    line: int
    has_other: bool


@dataclass(frozen=True, slots=True)
class ElementAccesses:
    """The reads and writes of a launch by element, per argument.

    ``read`` holds a byte per element, 1 where some program read it; ``writers`` an int32 per element, 1 + the number
    of the program that last wrote it, 0 for none.
    """

    read: Mapping[str, bytes] = field(default_factory=dict)
    writers: Mapping[str, bytes] = field(default_factory=dict)
    masked: tuple[MaskedLoad, ...] = ()

    def writer(self, name: str, element: int) -> int | None:
        """Return the number of the program that last wrote an element of an argument."""
        number: int = memoryview(self.writers[name]).cast("i")[element]
        return number - 1 if number else None


@dataclass(frozen=True, slots=True)
class InterpretJob:
    """A launch with its kernel and constexprs, as the interpreter worker gets it.

    ``warps`` of a program, if they are known, and ``multiprocessors`` are what kernels can ask the device for. With
    ``watch``, the answer says what the launch did with each element; with ``record``, it has the values of some
    programs, and only these run. With ``algebra``, floats are evaluated in the algebra of
    `kernellab.interpreter.algebra`. ``may_batch`` allows to run many programs at once, where nothing shows it.
    """

    closure: Closure
    launch: Launch
    constants: tuple[tuple[str, Binding], ...] = ()
    warps: int | None = None
    multiprocessors: int = MULTIPROCESSORS
    watch: Watch | None = None
    record: RecordRequest | None = None
    algebra: bool = False
    may_batch: bool = False


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The outcome of a launch in a worker.

    ``written`` are the indices of the storages that were stored to. With a ``failure`` the memory counts for nothing;
    ``strays`` are addresses in no argument that the kernel went to; ``accesses`` what a watch was to note. A run that
    ``needs_whole_storages`` was broken off where it left the views that were copied, and one that
    ``needs_fresh_memory`` where its programs turned out to depend on each other. ``unmodelled`` names operations
    that the algebra does not model.
    """

    seconds: float
    findings: tuple[Finding, ...] = ()
    output: str = ""
    notes: tuple[str, ...] = ()
    written: frozenset[int] = field(default_factory=frozenset)
    failure: Failure | None = None
    strays: tuple[int, ...] = ()
    accesses: ElementAccesses | None = None
    needs_whole_storages: bool = False
    needs_fresh_memory: bool = False
    values: tuple[RecordedValue, ...] = ()
    events: tuple[NonFiniteEvent, ...] = ()
    unmodelled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Run(Drawable):
    """One successful launch.

    ``seconds`` is the time of the launch itself, ``changed`` the number of elements that changed, per argument that
    holds memory (0 where nothing did); ``where`` is ``"interpreter"`` or ``"gpu"``. ``output`` is what the kernel
    printed. ``notes`` are remarks on how it was run ("bf16 arithmetic is rounded after each operation").
    ``arguments`` are the shapes and values of the launch, by name, of a run that `Lab.run` returns. ``unmodelled``
    names operations that a run in the algebra does not model. ``matches`` says which outputs equal the reference that
    `Lab.run` was given, "" without one.
    """

    kernel: str
    grid: tuple[int, int, int]
    seconds: float
    changed: Mapping[str, int]
    findings: tuple[Finding, ...]
    where: str
    output: str = ""
    notes: tuple[str, ...] = ()
    arguments: Mapping[str, ArgumentValue] = field(default_factory=dict)
    unmodelled: tuple[str, ...] = ()
    matches: str = ""


_WARNINGS_AT_MOST = 3


def show_unrecorded(run: Run) -> None:
    """Print a kernel's output, and warn of the findings of its checked run, if no report shows them."""
    sys.stdout.write(run.output)
    warnings = [finding for finding in run.findings if finding.severity is Severity.WARNING]
    for finding in warnings[:_WARNINGS_AT_MOST]:
        warn_user(f"{run.kernel}: {finding_words(finding)}.")
    if len(warnings) > _WARNINGS_AT_MOST:
        more = plural(len(warnings) - _WARNINGS_AT_MOST, "warning")
        warn_user(f"{run.kernel}: {more} more; lab.run(kernel, grid, ...).findings has all.")


def observe_launch(compiled: Compiled, arguments: Mapping[str, Any], grid: Grid3, launch: Callable[[], object]) -> Run:
    """Launch once on the GPU, and return the run.

    What the kernel may write is copied before, where the free memory allows it, and compared bit by bit after.
    ``seconds`` is the time on the device, without the compile.
    """
    import torch  # only where there is a GPU

    with bypass_modes():
        everything = memory_of(with_reached(arguments, compiled.effects, "cuda"))
        tensors = {name: tensor for name, tensor in everything.items() if tensor.is_cuda}
        written = compiled.effects.mutated if not compiled.effects.unknown else frozenset(tensors)
        candidates = {name: tensor for name, tensor in tensors.items() if name in written}
        needed = sum(tensor.numel() * tensor.element_size() for tensor in candidates.values())
        affordable = needed < torch.cuda.mem_get_info()[0] // 2
        before = {name: tensor.clone() for name, tensor in candidates.items()} if affordable else {}
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begin.record()
    launch()
    end.record()
    end.synchronize()
    changed = {name: 0 for name in tensors if affordable or name not in written}
    with bypass_modes():
        changed.update({name: int((bits_of(old) != bits_of(tensors[name])).sum()) for name, old in before.items()})
    notes = () if affordable else ("what changed was not counted: the GPU lacks memory for copies",)
    return Run(compiled.kernel, grid, begin.elapsed_time(end) / 1e3, changed, (), "gpu", notes=notes)


_MOST_BYTES_TO_COPY = 256 << 20


def on_cpu(arguments: Mapping[str, Any], effects: Effects | None = None) -> dict[str, Any]:
    """The arguments of a launch on CPU copies of their memory; views of one storage stay so.

    By names of its own, what the launch reaches through addresses among them goes along, as its ``effects`` say.

    Raises:
        RunError: there is more memory than is copied for a second look.
    """
    if size_bytes(arguments) > _MOST_BYTES_TO_COPY:
        raise RunError("The arguments are too large for a second look on the CPU.")
    return _copies(arguments, effects).everything


def run_on_cpu(
    arguments: Mapping[str, Any], run: Callable[[dict[str, Any]], Run], effects: Effects | None = None
) -> Run:
    """Run a launch on CPU copies of its arguments; after success, changes are copied back.

    Tensors that are on the CPU already are given to it as they are.
    """
    copies = _copies(arguments, effects)
    result = run(copies.everything)
    copies.take_back_addresses()
    for name, tensor in {**memory_of(arguments), **copies.behind.tensors}.items():
        storage = tensor.untyped_storage()
        if result.changed.get(name) and storage.device.type != "cpu":
            storage.copy_(copies.copier.storages[storage.device, storage.data_ptr()])
    return result


@bypass_modes()
def _copies(arguments: Mapping[str, Any], effects: Effects | None) -> Copies:
    copier = Copier(lambda storage: storage.cpu())
    return Copies(arguments, effects or NO_EFFECTS, device_of(arguments), copier)
