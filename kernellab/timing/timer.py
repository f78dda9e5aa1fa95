"""Launches the implementations of one case on the same inputs: a trial launch each, then timing in turns.

Kernels are timed in the GPU worker, functions in the notebook's process, each by its own clock. One kernel (the
reference entry) is timed by both in the same rounds, which relates the clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from kernellab.checking.comparison import ExpectedValue, agree, output_difference
from kernellab.checking.reference import bounded_values, call_by_name, select_arguments
from kernellab.errors import KernellabError, LaunchError, RunError, first_line, plural
from kernellab.ir.effects import REACHED
from kernellab.launch.arguments import CannotExport, memory_of
from kernellab.launch.memory import copy_arguments, device_of, reached_memory
from kernellab.launch.poison import fill
from kernellab.launch.runtime import Runtime
from kernellab.timing.bench import Bench, BenchOptions
from kernellab.timing.gpu_bench import worker_bench
from kernellab.timing.launches import Implementation, KernelLaunch, accessed_arguments, call_hooks, launch_on_copies
from kernellab.timing.stopwatch import DeviceState, Stopwatch, Turn, device_state, gpu_stopwatch, ratio_interval

TRIALS_OFF = "trial launches are switched off"
_CLOCK_MARGIN = 0.01


@dataclass(frozen=True, slots=True)
class Clocks:
    """The relation of the two clocks: the GPU worker times kernels, the notebook's process times functions.

    ``entry`` names the kernel that both timed in the same ``rounds``; ``ratio`` is the median of the notebook's time
    over the worker's; ``low`` and ``high`` bound it with 99 % confidence. ``point`` is the point of the sweep.
    """

    entry: str
    ratio: float
    low: float
    high: float
    rounds: int
    point: tuple[tuple[str, Any], ...] = ()

    @property
    def differ(self) -> bool:
        """Whether they differ beyond the noise, by more than 1 %."""
        return self.low > 1 + _CLOCK_MARGIN or self.high < 1 - _CLOCK_MARGIN

    @property
    def text(self) -> str:
        """The relation in words, as a row of a function says it."""
        off, bounds = abs(self.ratio - 1), sorted((abs(self.low - 1), abs(self.high - 1)))
        return (
            f"by the notebook's clock, {self.entry} takes {off:.1%} {'longer' if self.ratio > 1 else 'less'} "
            f"({bounds[0]:.1%} to {bounds[1]:.1%}) than by that of the GPU worker"
        )


@dataclass(slots=True)
class GpuTimer:
    """Launches and times the implementations of one case: kernels by ``bench``, functions by ``watch``, here.

    A failing launch raises a `KernellabError`; the timer still works for other implementations. First launches go
    through the lab, as trial launches in the worker; ``recording`` is their context. The timer owns ``arguments`` and
    writes to their tensors; memory that they point to is the user's. ``outputs`` are compared; ``written`` are tensors
    that some kernel writes, ``read`` names of those that some kernel reads. Kernels that no worker can reach are timed
    in this process, too.
    """

    watch: Stopwatch
    recording: Callable[[], AbstractContextManager[Any]]
    arguments: Mapping[str, Any]
    outputs: Mapping[str, Any]
    written: Mapping[str, Any]
    read: frozenset[str]
    bench: Bench | None = None
    notes: Sequence[str] = ()
    read_state: Callable[[], DeviceState] = device_state
    state: DeviceState = field(default_factory=DeviceState)
    _initial_values: list[tuple[Any, Any]] = field(default_factory=list)
    _first_outputs: FirstOutputs = field(init=False)
    _turns: dict[int, Turn] = field(default_factory=dict)
    _here: dict[int, str] = field(default_factory=dict)
    _clocks: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kept = [t for name, t in self.written.items() if name in self.read or name.startswith(REACHED)]
        self._initial_values = [(tensor, tensor.clone()) for tensor in kept]
        self._first_outputs = FirstOutputs(self.arguments, list(self.outputs))

    def try_out(self, implementation: Implementation) -> str:
        """Make a trial launch; return the difference of its outputs from the first implementation's, or ""."""
        launch = implementation.launch
        try:
            for name, tensor in self.written.items():
                if name not in self.read:
                    fill(tensor)
            self._restore(launch)
            if launch is None:
                outputs = self._call_function(implementation)
            else:
                outputs = self._launch_kernel(implementation, launch)
            return self._first_outputs.difference(implementation, outputs)
        except RuntimeError as exc:  # of torch: no memory for a copy of the outputs, a device after a fault
            raise RunError(f"{implementation.name} cannot be tried: {first_line(exc)}.") from exc

    def load_in_worker(self, implementation: Implementation) -> None:
        """Launch a kernel once in the worker that times it, after all trials: a trial that fails may end the worker."""
        if implementation.launch is None:
            return
        if self.bench is None:
            self._here[id(implementation)] = TRIALS_OFF
            return
        self._restore()  # the worker begins with copies
        try:
            self.bench.measure(implementation, 1, None)
        except CannotExport as exc:
            self._here[id(implementation)] = str(exc)

    def interleave(self, implementations: Sequence[Implementation], rounds: int) -> list[tuple[float, ...]]:
        """Return the times of each in ms, one per round, with a flushed L2; the rounds of the worker come first."""
        there = [i for i in implementations if i.launch is not None and id(i) not in self._here]
        here = [implementation for implementation in implementations if implementation not in there]
        entry = there[0] if there and here else None
        times: dict[int, tuple[float, ...]] = {}
        if there and self.bench is not None:
            self._restore()
            self.watch.synchronize()  # the worker shares the device
            times |= zip(map(id, there), self.bench.interleave(there, rounds), strict=True)
            self._read_state()
        if here:
            samples = self._time_here([*here, *([] if entry is None else [entry])], rounds)
            if entry is not None:
                pairs = self._clocks.setdefault(entry.name, [])
                pairs += zip(times[id(entry)], samples.pop(), strict=True)
            times |= zip(map(id, here), samples, strict=True)
        return [times[id(implementation)] for implementation in implementations]

    def why_here(self, implementation: Implementation) -> str:
        """Return why a kernel is timed in this process; "" for functions and kernels of the worker."""
        return self._here.get(id(implementation), "")

    def clocks(self) -> Clocks | None:
        """Return the relation of the two clocks, by the launch that both timed most often; None without one."""
        if not self._clocks:
            return None
        name, pairs = max(self._clocks.items(), key=lambda item: len(item[1]))
        there, here = zip(*pairs, strict=True)
        ratio = ratio_interval(here, there)
        return Clocks(name, ratio.median, ratio.low, ratio.high, len(pairs))

    def close(self) -> None:
        """Restore tensors that kernels update in place: ``inputs`` may give them to the next case."""
        if self.bench is not None:
            self.bench.close()
        with suppress(RuntimeError):  # of a device after a fault
            self._restore()
        self._turns.clear()  # they reference the timer, and so all inputs
        self._initial_values.clear()

    def _time_here(self, implementations: Sequence[Implementation], rounds: int) -> list[tuple[float, ...]]:
        turns = [self._turns[id(implementation)] for implementation in implementations]
        try:
            return [tuple(row) for row in self.watch.turns(turns, rounds, self._read_state)]
        except RuntimeError as exc:
            names = ", ".join(implementation.name for implementation in implementations)
            raise RunError(f"Timing {names} failed: {first_line(exc)}") from exc

    def _read_state(self) -> None:
        self.state = self.read_state()

    def _restore(self, launch: KernelLaunch | None = None) -> None:
        """Restore the tensors that launches read and write, and call the hooks of the config."""
        for tensor, held in self._initial_values:
            tensor.copy_(held)
        if launch is not None:
            call_hooks(launch, launch.arguments)

    def _launch_kernel(self, implementation: Implementation, launch: KernelLaunch) -> list[Any]:
        """Launch a kernel through the lab, in the GPU worker first where it is new; return its outputs."""
        import torch  # keeps `import kernellab` light

        from kernellab._triton.drivers import relauncher

        with self.recording():
            handle = launch.function[launch.grid](**launch.arguments, **launch.options)
        if handle is None:
            raise LaunchError(f"The grid of {implementation.name} is {launch.grid}: nothing is launched.")
        handle = handle.result() if hasattr(handle, "result") else handle
        stream = torch.cuda.current_stream().cuda_stream
        relaunch = relauncher(handle, launch.grid, tuple(launch.arguments.values()), stream)
        self._turns[id(implementation)] = Turn(relaunch, lambda: self._restore(launch))
        if implementation.compiled is None:
            return [tensor for name, tensor in memory_of(launch.arguments).items() if name in self.outputs]
        return list(mutated_tensors(launch.arguments, [implementation]).values())

    def _call_function(self, implementation: Implementation) -> list[Any]:
        """Call a function on the timer's tensors; changes of its inputs are refused."""
        import torch

        function = implementation.function
        assert function is not None, "a function, as it is not a kernel"
        inputs = {name: tensor for name, tensor in memory_of(self.arguments).items() if name not in self.written}
        versions = {name: tensor._version for name, tensor in inputs.items()}
        result = run_function(implementation, self.arguments)
        try:
            torch.cuda.synchronize()
        except RuntimeError as exc:
            raise RunError(f"{implementation.name} failed on the GPU: {first_line(exc)}") from exc
        changed = [name for name, version in versions.items() if inputs[name]._version != version]
        if changed:
            name = implementation.name
            raise RunError(f"{name} changes {changed[0]} in place, which the others read; clone it first.")
        repeat = partial(function, **select_arguments(function, self.arguments))
        self._turns[id(implementation)] = Turn(repeat, self._restore)
        return returned_outputs(result, list(self.outputs.values()))


def gpu_timers(runtime: Runtime, timeout_s: float) -> Callable[[Mapping[str, Any], Sequence[Implementation]], GpuTimer]:
    """Return the function that opens the timer of a case, from its arguments and implementations."""
    watch = cache(gpu_stopwatch)

    def open_timer(arguments: Mapping[str, Any], implementations: Sequence[Implementation]) -> GpuTimer:
        read = frozenset[str]().union(*(reads for _, reads in _accesses(arguments, implementations)))
        notes: list[str] = []
        kernels = dict.fromkeys(i.name for i in implementations if i.launch is not None)
        options = BenchOptions(" and ".join(kernels), timeout_s, compares=False, notes=notes)
        trials = runtime.trials
        return GpuTimer(
            watch=watch(),
            recording=partial(runtime.recording, timeout_s=timeout_s),
            arguments=arguments,
            outputs=first_outputs_of(arguments, implementations),
            written=mutated_tensors(arguments, implementations),
            read=read,
            bench=worker_bench(options, trials) if trials is not None and trials.enabled and kernels else None,
            notes=notes,
        )

    return open_timer


def first_outputs_of(arguments: Mapping[str, Any], implementations: Sequence[Implementation]) -> dict[str, Any]:
    """Return the tensors that the first kernel among the implementations may write."""
    return mutated_tensors(arguments, [i for i in implementations if i.compiled is not None][:1])


def mutated_tensors(arguments: Mapping[str, Any], implementations: Sequence[Implementation]) -> dict[str, Any]:
    """Return the tensors that some of the kernels among the implementations may write."""
    return {name: tensor for mutated, _ in _accesses(arguments, implementations) for name, tensor in mutated.items()}


def _accesses(
    arguments: Mapping[str, Any], implementations: Sequence[Implementation]
) -> Iterator[tuple[dict[str, Any], frozenset[str]]]:
    """Yield the tensors that each kernel may write, and the names of those that it may read."""
    memory, device = memory_of(arguments), device_of(arguments)
    for implementation in implementations:
        if implementation.compiled is not None:
            effects = implementation.compiled.effects
            behind = reached_memory(arguments, effects, device)
            mutated, read = accessed_arguments(effects, behind)
            yield {n: tensor for n, tensor in {**memory, **behind.tensors}.items() if n in mutated}, read


def difference(outputs: Sequence[Any], reference: Sequence[ExpectedValue], names: Sequence[str], subject: str) -> str:
    """Return the difference of outputs from a reference, in words; "" where they agree."""
    if len(outputs) != len(reference):
        written = ", ".join(names) or "nothing"
        own = plural(len(outputs), "output")
        return f"{own} against {len(reference)} of {subject}; the kernel writes {written}, in this order"
    # Where no kernel compiled, or another one writes more, the names are not those of the outputs.
    labels = names if len(names) == len(outputs) else [f"output {number}" for number in range(len(outputs))]
    for name, got, want in zip(labels, outputs, reference, strict=True):
        if got.numel() != want.value.numel():
            return f"{name} has the shape {tuple(got.shape)}, and {subject} has {tuple(want.value.shape)}"
        differing = output_difference(name, got, want)
        if differing is not None:
            return f"{name} differs from that of {subject} {differing.amount}"
    return ""


def returned_outputs(result: Any, written: Sequence[Any]) -> list[Any]:
    """Return the outputs of a function: its results, or the tensors it wrote where it returns None.

    Raises:
        RunError: it returns something that is not a tensor.
    """
    if result is None:
        return list(written)
    outputs = list(result) if isinstance(result, tuple | list) else [result]
    if not all(hasattr(output, "numel") for output in outputs):
        kinds = ", ".join(type(output).__name__ for output in outputs)
        raise RunError(f"It returns {kinds}; expected a tensor, or a tuple with one per output of the kernel.")
    return outputs


def run_function(implementation: Implementation, arguments: Mapping[str, Any]) -> Any:
    """Call a function of the user.

    Raises:
        RunError: it raises, in its own words.
    """
    return call_by_name(implementation.function, arguments, implementation.name, error=RunError)


def expected_values(
    implementation: Implementation, arguments: Mapping[str, Any], outputs: Sequence[Any]
) -> list[ExpectedValue]:
    """Return the expected values for later implementations: the first one's outputs, with bounds from a function.

    A function is called again in float64; where that differs, or changes its arguments, its outputs count as they are.
    """
    plain = [ExpectedValue(output.clone()) for output in outputs]
    if implementation.function is None:
        return plain
    with suppress(Exception):  # of the second call; the outputs of the first one remain
        values = bounded_values(partial(call_by_name, implementation.function, what=implementation.name), arguments)
        bounds = list(values) if isinstance(values, tuple) else [values]
        if all(agree(got, want) for got, want in zip(outputs, bounds, strict=True)):
            return bounds
    return plain


@dataclass(slots=True)
class FirstOutputs:
    """Compares the outputs of implementations with those of the first; ``names`` are those that a kernel writes."""

    arguments: Mapping[str, Any]
    names: Sequence[str]
    _first: tuple[str, list[ExpectedValue]] | None = None

    def difference(self, implementation: Implementation, outputs: Sequence[Any]) -> str:
        """Return the difference from the first implementation's outputs; "" for the first one and where they agree."""
        if self._first is None:
            self._first = (implementation.name, expected_values(implementation, self.arguments, outputs))
            return ""
        name, reference = self._first
        return difference(outputs, reference, self.names, name)


def differences_on_cpu(
    runtime: Runtime, timeout_s: float, arguments: Mapping[str, Any], implementations: Sequence[Implementation]
) -> list[str]:
    """Run all implementations on the CPU; return for each the difference from the first one's outputs, or ""."""
    compare, problems = comparer_on_cpu(runtime, timeout_s, arguments, implementations), []
    for implementation in implementations:
        try:
            problems.append(compare(implementation))
        except KernellabError as exc:
            problems.append(" ".join(exc.message.split()))
    return problems


def comparer_on_cpu(
    runtime: Runtime, timeout_s: float, arguments: Mapping[str, Any], implementations: Sequence[Implementation]
) -> Callable[[Implementation], str]:
    """Return the function that runs an implementation on the CPU and compares its outputs with the first one's.

    It returns the difference, or "", and raises what the implementation fails with.
    """
    names = list(first_outputs_of(arguments, implementations))
    first = FirstOutputs(arguments, names)

    def compare(implementation: Implementation) -> str:
        outputs = _run_on_cpu(runtime, timeout_s, arguments, implementation, names)
        return first.difference(implementation, outputs)

    return compare


def _run_on_cpu(
    runtime: Runtime, timeout_s: float, arguments: Mapping[str, Any], implementation: Implementation, names: list[str]
) -> list[Any]:
    launch = implementation.launch
    if launch is None:
        arguments_copy = copy_arguments(arguments)
        memory = memory_of(arguments_copy)
        return returned_outputs(
            run_function(implementation, arguments_copy), [memory[name] for name in names if name in memory]
        )
    copies, _ = launch_on_copies(runtime, launch, implementation.kernel.effects, "cpu", timeout_s)
    memory = {**memory_of(copies.arguments), **copies.reached}
    return [memory[name] for name in names if name in memory]
