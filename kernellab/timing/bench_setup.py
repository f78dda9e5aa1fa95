"""The arguments and the memory of the launches of a bench, as data for the process that times them.

Where the GPU worker cannot reach hooks or memory, the bench is in this process. A fault there ends the session, and a
kernel that hangs cannot be stopped.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from kernellab.checking.comparison import OutputDifference
from kernellab.checking.reference import Reference
from kernellab.compile.entries import triton_files
from kernellab.compile.types import Compiled
from kernellab.errors import KernellabError, UsageError
from kernellab.gpu.device_view import is_comparable
from kernellab.gpu.ipc import IpcExport, Memory, needs_torch_mapping
from kernellab.ir.effects import Effects
from kernellab.launch.arguments import ArgumentSpec, CannotExport, TensorSpec, memory_of, tensors_of
from kernellab.launch.memory import NOTHING, Reached, reached
from kernellab.launch.poison import fill_of
from kernellab.timing.bench_jobs import (
    BenchKernel,
    BenchTiming,
    CompareJob,
    ExpectedOutput,
    MeasureJob,
    RoundsJob,
    Setup,
    bound_hooks,
    hook_calls,
)
from kernellab.timing.bench_memory import TooLarge, copy_memory, in_place
from kernellab.timing.bench_worker import Workbench
from kernellab.timing.launches import (
    BenchOptions,
    Implementation,
    KernelLaunch,
    LaunchTimes,
    accessed_arguments,
    measure_singly,
    require_good,
)

_MOST_SPECS = 64
Specs = tuple[tuple[str, ArgumentSpec], ...]
"""Arguments of a launch by name, as data."""


@dataclass(slots=True)
class CommonMemory:
    """The union of the memory that the launches of a bench reach, in a stable order.

    ``arguments`` are those of each launch that adds memory or names. ``behind`` is the memory reached through addresses
    among them. ``mutated`` and ``read`` name the arguments that some launch may write and read.
    """

    arguments: list[Mapping[str, Any]] = field(default_factory=list)
    mutated: frozenset[str] = frozenset()
    read: frozenset[str] = frozenset()
    behind: Reached = NOTHING
    _known: set[tuple[str, int]] = field(default_factory=set)
    _specs: dict[int, tuple[KernelLaunch, Specs]] = field(default_factory=dict)  # by the id of the launch

    def take(self, implementation: Implementation, launch: KernelLaunch, device: int) -> bool:
        """Add a launch; return whether it brings memory, names or effects that are new."""
        effects, is_new = implementation.kernel.effects, False
        if not effects.through <= self.behind.through:
            self.behind = self.behind.joined(reached(launch.arguments, effects, "cuda"))
            is_new = True
        mutated, read = accessed_arguments(effects, self.behind)
        if not (mutated <= self.mutated and read <= self.read):
            self.mutated, self.read = self.mutated | mutated, self.read | read
            is_new = True
        views = {(name, view.storage) for name, view in _views(self.specs(launch, device))}
        if not views <= self._known:
            self._known |= views
            self.arguments.append(launch.arguments)
            is_new = True
        return is_new

    def export(self, device: int) -> IpcExport:
        """Return an export of the memory of all launches, each memory at its index."""
        exported = IpcExport(device, self.mutated, behind=self.behind)
        for arguments in self.arguments:
            exported.specs(arguments)
        return exported

    def specs(self, launch: KernelLaunch, device: int) -> Specs:
        """Return the arguments of a launch as data, cached by launch."""
        known = self._specs.get(id(launch))
        if known is None:
            known = self._specs[id(launch)] = launch, self.export(device).specs(launch.arguments)
            if len(self._specs) > _MOST_SPECS:  # a slider's bench lives long, and each launch holds its arguments
                del self._specs[next(iter(self._specs))]
        return known[1]

    def setup(
        self, name: str, options: BenchOptions, exported: IpcExport, values: IpcExport, *, stays: bool = False
    ) -> Setup:
        """Return the setup of a bench; ``exported`` collects the arguments and ``values`` the reference.

        With ``stays``, the bench is in this process, and memories have no IPC handles.

        Raises:
            CannotExport: the memory of an argument cannot be shared.
            UsageError: the reference does not fit the outputs.
        """
        known = [*self.arguments, self.behind.tensors]
        views = [pair for arguments in known for pair in _views(exported.specs(arguments))]
        written = [(key, view) for key, view in views if key in self.mutated]
        outputs: dict[str, TensorSpec] = {}
        names: dict[TensorSpec, list[str]] = {}
        for key, view in written:
            outputs.setdefault(key, view)
            names.setdefault(view, []).append(key)
        everything = {key: value for arguments in reversed(known) for key, value in arguments.items()}
        expected = () if options.reference is None else expected_outputs(options.reference, everything, outputs, values)
        judged = tuple(each for each in expected if options.counts(each.name))
        if expected and not judged:
            names_of_values = ", ".join(each.name for each in expected)
            raise UsageError(f"check gives values for {names_of_values} alone, and outputs names none of these.")
        storages = {view.storage for _, view in written}
        return Setup(
            name=name,
            device=exported.device,
            memories=_own_memories(exported, storages) if stays else exported.memories(),
            read=frozenset(view.storage for key, view in views if key in self.read),
            outputs=tuple(names) if options.compares else (),
            names=tuple(keys[0] for keys in names.values()),
            left_out=frozenset(i for i, keys in enumerate(names.values()) if not any(map(options.counts, keys))),
            zeroed=tuple(view for key, view in views if key in options.reset),
            expected=judged,
            references=() if stays else values.memories(),
            tables=exported.tables,
        )


def needs_torch(setup: Setup) -> bool:
    """Whether only torch can map some memory or compare some output, such as complex or sub-byte formats."""
    compared = [spec for index, spec in enumerate(setup.outputs) if index not in setup.left_out]
    return needs_torch_mapping((*setup.memories, *setup.references)) or not all(map(is_comparable, compared))


def require_followed(effects: Effects) -> None:
    """Raise where a launch writes through an address that cannot be followed, so its target cannot be copied.

    Raises:
        CannotExport: an address cannot be followed.
    """
    if effects.lost is not None:
        raise CannotExport(f"{effects.lost}; what the launches changed there was not brought back")


def bench_kernel(compiled: Compiled, launch: KernelLaunch, specs: Specs, hooks: bytes = b"") -> BenchKernel:
    """Return the launch of a compiled kernel as data, with its arguments as ``specs``."""
    return BenchKernel(
        files=tuple(triton_files(compiled).items()),
        digest=compiled.digest,
        signature=launch.job.signature,
        constants=tuple(path for path, _ in launch.job.constants),
        grid=launch.grid,
        arguments=specs,
        hooks=hooks,
    )


def expected_outputs(
    reference: Reference, arguments: Mapping[str, Any], views: Mapping[str, TensorSpec], exported: IpcExport
) -> tuple[ExpectedOutput, ...]:
    """Return the expected outputs of a bench; ``exported`` collects their values.

    ``views`` are the outputs in the memory of the bench, ``arguments`` those of a launch in user memory.
    """
    tensors = memory_of(arguments)
    values = reference.of({name: tensors[name] for name in views if name in tensors})
    specs = dict(exported.specs({name: value.value for name, value in values.items()}))
    errors = {name: value.error for name, value in values.items() if value.error is not None}
    bounds = dict(exported.specs(errors))
    return tuple(
        ExpectedOutput(name, views[name], spec, _tensor(bounds.get(name)), values[name].unit, fill_of(tensors[name]))
        for name, spec in specs.items()
        if isinstance(spec, TensorSpec)
    )


def _tensor(spec: ArgumentSpec | None) -> TensorSpec | None:
    return spec if isinstance(spec, TensorSpec) else None


def _views(specs: Sequence[tuple[str, ArgumentSpec]]) -> list[tuple[str, TensorSpec]]:
    return [pair for name, spec in specs for pair in tensors_of(name, spec)]


def _own_memories(exported: IpcExport, written: Container[int]) -> tuple[Memory, ...]:
    """Return the storages of arguments as memories of this process, which need no handles."""
    tables = {view.storage for view in exported.tables.views}
    originals = [bytes_of(storage) for storage in exported.storages]
    return tuple(
        Memory(None, original.numel(), original.data_ptr(), index in written, index in tables)
        for index, original in enumerate(originals)
    )


def bytes_of(storage: Any) -> Any:
    """Return a storage of the GPU as a tensor of its bytes; an empty one for None."""
    import torch

    if storage is None:
        return torch.empty(0, dtype=torch.uint8, device="cuda")
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


@dataclass(slots=True)
class LocalBench:
    """Times launches in this process, on copies of the arguments where they fit."""

    options: BenchOptions
    _bench: Workbench | None = None
    _names: Mapping[int, Sequence[str]] = field(default_factory=dict)
    _common: CommonMemory = field(default_factory=CommonMemory)
    _founders: list[Implementation] = field(default_factory=list)

    def get_ready(self) -> None:
        """Do nothing: the notebook's process is ready."""

    def measure(self, implementation: Implementation, runs: int, stop_above_ms: float | None) -> LaunchTimes:
        """Launch once to compare the outputs, then time; see `Bench.measure`."""
        bench, (kernel,) = self._workbench_and_kernels([implementation])
        references, manner = tuple(map(self._kernel, self._founders)), self.options.manner
        job = MeasureJob(bench.memory.setup, (kernel,), runs, stop_above_ms, references, manner)
        timing = bench.measure(job)[0]
        if timing.damages:
            self.close()
        require_good(timing, implementation, self._names)
        return record_timing(timing, implementation, self.options, self._founders)

    def measure_all(
        self, implementations: Sequence[Implementation], runs: int, stop_above_ms: float | None, loser_factor: float
    ) -> list[LaunchTimes | KernellabError]:
        """Measure each in turn; see `Bench.measure_all`."""
        return measure_singly(self, implementations, runs, stop_above_ms)

    def compare(
        self, implementation: Implementation, others: Sequence[Implementation]
    ) -> list[tuple[OutputDifference, ...]]:
        """Compare the outputs of others with those of one; see `Bench.compare`."""
        bench, (kernel, *rest) = self._workbench_and_kernels([implementation, *others])
        timings = bench.compare(CompareJob(bench.memory.setup, kernel, tuple(rest)))
        if timings[-1].damages:
            self.close()
        require_good(timings[-1], others[len(timings) - 1], self._names)
        return [timing.differing for timing in timings]

    def interleave(self, implementations: Sequence[Implementation], rounds: int) -> list[tuple[float, ...]]:
        """Return the times of each in turns; see `Bench.interleave`."""
        return self._rounds(implementations, rounds, warm=False)

    def warm(self, implementations: Sequence[Implementation], runs: int) -> list[float]:
        """Return the median times with a warm L2; see `Bench.warm`."""
        return [median(times) for times in self._rounds(implementations, runs, warm=True)]

    def close(self) -> None:
        """Free the copies, and restore the user's own memory."""
        if self._bench is not None:
            self._bench.memory.give_back()
            self._bench = None

    def _rounds(self, implementations: Sequence[Implementation], rounds: int, *, warm: bool) -> list[tuple[float, ...]]:
        bench, kernels = self._workbench_and_kernels(implementations)
        job = RoundsJob(bench.memory.setup, tuple(kernels), rounds, warm, self.options.manner.by_graph)
        timings = bench.rounds(job)
        for timing in timings:
            require_good(timing, implementations[0])
            self.options.notes.extend([timing.note] if timing.note else [])
        return [timing.times_ms for timing in timings]

    def _workbench_and_kernels(self, implementations: Sequence[Implementation]) -> tuple[Workbench, list[BenchKernel]]:
        """Return the workbench, set up for all launches so far, and some launches as data."""
        import torch

        device = torch.cuda.current_device()
        launches = map(self.options.launch_of, implementations)
        changes = [self._common.take(*pair, device) for pair in zip(implementations, launches, strict=True)]
        if any(changes):
            self.close()
        if self._bench is None:
            self._bench = self._new_workbench(device)
        return self._bench, [self._kernel(each) for each in implementations]

    def _new_workbench(self, device: int) -> Workbench:
        exported = IpcExport(device, self._common.mutated, behind=self._common.behind)
        values = IpcExport(device, frozenset())
        setup = self._common.setup("local", self.options, exported, values, stays=True)
        self._names = exported.names
        originals = [bytes_of(storage) for storage in exported.storages]
        try:
            memory = copy_memory(setup, originals, keeps_originals=True)
        except TooLarge:
            self.options.notes.append("timed on the notebook's own memory: there was no room for copies")
            memory = in_place(setup, originals)
        return Workbench(memory, [bytes_of(storage) for storage in values.storages])

    def _kernel(self, implementation: Implementation) -> BenchKernel:
        import torch

        launch = self.options.launch_of(implementation)
        specs = self._common.specs(launch, torch.cuda.current_device())
        kernel = bench_kernel(implementation.kernel, launch, specs)
        if launch.has_hooks and self._bench is not None:
            self._bench.hooks[kernel.key] = bound_hooks(hook_calls(launch), specs, self._bench.memory.tensors)
        return kernel


def record_timing(
    timing: BenchTiming, implementation: Implementation, options: BenchOptions, founders: list[Implementation]
) -> LaunchTimes:
    """Convert a timing to its result; add the first launch of a new group of outputs to ``founders``."""
    if timing.group == len(founders):
        founders.append(implementation)
    if timing.note:
        options.notes.append(timing.note)
    return LaunchTimes(timing.times_ms, timing.group, timing.difference)
