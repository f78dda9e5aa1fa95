"""Launches the implementations of one case on the same inputs, each tried out with care, then timed in turns.

Kernels are timed in the GPU worker and functions in the notebook's process, by a clock each. One launch of a kernel is
timed by both, in the same rounds: the reference entry, which relates them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from kernellab.benchmark.result import Clocks
from kernellab.errors import KernellabError, LaunchError, RunError, first_line, plural
from kernellab.ir.effects import REACHED, Effects
from kernellab.launch.arguments import CannotExport, memory_of
from kernellab.launch.memory import copied, device_of, reached
from kernellab.launch.poison import fill
from kernellab.launch.runtime import Runtime
from kernellab.measure.comparison import ExpectedValue, agree
from kernellab.measure.gpu_bench import WorkerBench
from kernellab.measure.launches import (
    Bench,
    BenchOptions,
    Implementation,
    KernelLaunch,
    call_hooks,
    launched_on_copies,
    touched,
)
from kernellab.measure.reference import bounded_values, called, require_names, taken_of
from kernellab.measure.timing import DeviceState, Stopwatch, Turn, device_state, gpu_stopwatch, ratio_interval

SWITCHED_OFF = "trial launches are switched off"


class Timer(Protocol):
    """Launches the implementations of one case on the same inputs.

    A launch that fails raises a `KernellabError`, after which the timer goes on to work for other implementations.
    """

    @property
    def state(self) -> DeviceState:
        """How the device fared while it last timed something."""

    @property
    def notes(self) -> Sequence[str]:
        """What the user should know."""

    def try_out(self, implementation: Implementation) -> str:
        """Launch once, with care; return how the outputs differ from those of the first one tried, or ""."""

    def hand_over(self, implementation: Implementation) -> None:
        """Give a kernel to who times it, once all have been tried: a trial that fails may end the worker."""

    def interleave(self, implementations: Sequence[Implementation], rounds: int) -> list[tuple[float, ...]]:
        """Return the times of each in ms, one per round, with a flushed L2; each round launches all of them."""

    def why_here(self, implementation: Implementation) -> str:
        """Return why a kernel is timed in the notebook's process; "" where it is not, and of a function."""

    def clocks(self) -> Clocks | None:
        """Return how the clocks relate, None where all that was timed was timed by one of them."""

    def close(self) -> None:
        """Give back what the timer holds."""


@dataclass(slots=True)
class GpuTimer:
    """The timer on a GPU: ``bench`` times kernels in the worker, ``watch`` functions in this process.

    First launches go through the lab, which tries them in the worker; ``recording`` is the context for them.
    ``arguments`` belong to the timer: their tensors are written to; what they reach is the user's. ``outputs`` are
    compared; ``written`` is all that some kernel writes, and ``read`` names what some kernel reads. Without a bench,
    and where the worker cannot reach what a kernel needs, that is timed in this process, too. ``look`` tells how the
    device fares.
    """

    watch: Stopwatch
    recording: Callable[[], AbstractContextManager[Any]]
    arguments: Mapping[str, Any]
    outputs: Mapping[str, Any]
    written: Mapping[str, Any]
    read: frozenset[str]
    bench: Bench | None = None
    notes: Sequence[str] = ()
    look: Callable[[], DeviceState] = device_state
    state: DeviceState = field(default_factory=DeviceState)
    _before: list[tuple[Any, Any]] = field(default_factory=list)
    _first: FirstOutputs = field(init=False)
    _turns: dict[int, Turn] = field(default_factory=dict)
    _here: dict[int, str] = field(default_factory=dict)
    _clocks: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kept = [t for name, t in self.written.items() if name in self.read or name.startswith(REACHED)]
        self._before = [(tensor, tensor.clone()) for tensor in kept]
        self._first = FirstOutputs(self.arguments, list(self.outputs))

    def try_out(self, implementation: Implementation) -> str:
        """Launch once, with care; return how the outputs differ from those of the first one tried, or ""."""
        try:
            return self._tried(implementation)
        except RuntimeError as exc:  # of torch: no memory for a copy of the outputs, a device after a fault
            raise RunError(f"{implementation.name} cannot be tried: {first_line(exc)}.") from exc

    def hand_over(self, implementation: Implementation) -> None:
        """Let the worker launch a kernel once, on memory of its own; where it cannot, note why."""
        if implementation.launch is None:
            return
        if self.bench is None:
            self._here[id(implementation)] = SWITCHED_OFF
            return
        self._restore()  # the worker begins with copies
        try:
            self.bench.measure(implementation, 1, None)
        except CannotExport as exc:
            self._here[id(implementation)] = str(exc)

    def interleave(self, implementations: Sequence[Implementation], rounds: int) -> list[tuple[float, ...]]:
        """Return the times of each in ms; the rounds of the worker come first, then those of this process."""
        there = [each for each in implementations if self._is_there(each)]
        here = [each for each in implementations if not self._is_there(each)]
        entry = there[0] if there and here else None
        times: dict[int, tuple[float, ...]] = {}
        if there and self.bench is not None:
            self._restore()
            self.watch.synchronize()  # the worker shares the device
            times |= zip(map(id, there), self.bench.interleave(there, rounds), strict=True)
            self._look()
        if here:
            found = self._timed_here([*here, *([] if entry is None else [entry])], rounds)
            if entry is not None:
                pairs = self._clocks.setdefault(entry.name, [])
                pairs += zip(times[id(entry)], found.pop(), strict=True)
            times |= zip(map(id, here), found, strict=True)
        return [times[id(each)] for each in implementations]

    def why_here(self, implementation: Implementation) -> str:
        """Return why a kernel is timed in this process; "" where it is not, and of a function."""
        return self._here.get(id(implementation), "")

    def clocks(self) -> Clocks | None:
        """Return how the clocks relate: the longest record of one launch that both have timed."""
        if not self._clocks:
            return None
        name, pairs = max(self._clocks.items(), key=lambda item: len(item[1]))
        there, here = zip(*pairs, strict=True)
        ratio = ratio_interval(here, there)
        return Clocks(name, ratio.median, ratio.low, ratio.high, len(pairs))

    def close(self) -> None:
        """Leave what kernels work on in place as it was: ``inputs`` may give the same tensor to the next case."""
        if self.bench is not None:
            self.bench.close()
        with suppress(RuntimeError):  # of a device after a fault
            self._restore()
        self._turns.clear()  # they hold the timer, and it all of the inputs
        self._before.clear()

    def _tried(self, implementation: Implementation) -> str:
        for name, tensor in self.written.items():
            if name not in self.read:
                fill(tensor)
        self._restore(implementation.launch)
        is_kernel = implementation.launch is not None
        outputs = self._launched(implementation) if is_kernel else self._called(implementation)
        return self._first.difference(implementation, outputs)

    def _is_there(self, implementation: Implementation) -> bool:
        return implementation.launch is not None and id(implementation) not in self._here

    def _timed_here(self, implementations: Sequence[Implementation], rounds: int) -> list[tuple[float, ...]]:
        turns = [self._turns[id(each)] for each in implementations]
        try:
            return [tuple(each) for each in self.watch.turns(turns, rounds, self._look)]
        except RuntimeError as exc:
            names = ", ".join(each.name for each in implementations)
            raise RunError(f"Timing {names} failed: {first_line(exc)}") from exc

    def _look(self) -> None:
        self.state = self.look()

    def _restore(self, launch: KernelLaunch | None = None) -> None:
        """Bring back what a launch must find, and call the hooks of its config."""
        for tensor, held in self._before:
            tensor.copy_(held)
        if launch is not None:
            call_hooks(launch, launch.arguments)

    def _launched(self, implementation: Implementation) -> list[Any]:
        """Launch a kernel through the lab, in the GPU worker first where it is new; return its outputs."""
        import torch  # keeps `import kernellab` light

        from kernellab._triton.drivers import relauncher

        launch = implementation.launch
        assert launch is not None, "a kernel has a launch"
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
        return list(written_by(launch.arguments, [implementation]).values())

    def _called(self, implementation: Implementation) -> list[Any]:
        """Call a function, on the timer's tensors; what it changes of the inputs is refused."""
        import torch

        function = implementation.function
        assert function is not None, "what is no kernel is a function"
        inputs = {name: each for name, each in memory_of(self.arguments).items() if name not in self.written}
        versions = {name: each._version for name, each in inputs.items()}
        result = run_function(implementation, self.arguments)
        try:
            torch.cuda.synchronize()
        except RuntimeError as exc:
            raise RunError(f"{implementation.name} failed on the GPU: {first_line(exc)}") from exc
        changed = [name for name, version in versions.items() if inputs[name]._version != version]
        if changed:
            name = implementation.name
            raise RunError(f"{name} changes {changed[0]} in place, which the others read; clone it first.")
        again = partial(function, **taken_of(function, self.arguments))
        self._turns[id(implementation)] = Turn(again, self._restore)
        return returned(result, list(self.outputs.values()))


def gpu_timers(runtime: Runtime, timeout_s: float) -> Callable[[Mapping[str, Any], Sequence[Implementation]], GpuTimer]:
    """Return what opens the timer of a case, from its arguments and implementations."""
    watches: list[Stopwatch] = []

    def opened(arguments: Mapping[str, Any], implementations: Sequence[Implementation]) -> GpuTimer:
        if not watches:
            watches.append(gpu_stopwatch())
        effects = [each.compiled.effects for each in implementations if each.compiled is not None]
        behind = [reached(arguments, each, "cuda") for each in effects]
        read = frozenset[str]().union(*(touched(*pair)[1] for pair in zip(effects, behind, strict=True)))
        notes: list[str] = []
        kernels = dict.fromkeys(each.name for each in implementations if each.launch is not None)
        options = BenchOptions(" and ".join(kernels), timeout_s, compares=False, notes=notes)
        trials = runtime.trials
        return GpuTimer(
            watch=watches[0],
            recording=partial(runtime.recording, timeout_s=timeout_s),
            arguments=arguments,
            outputs=outputs_of(arguments, implementations),
            written=written_by(arguments, implementations),
            read=read,
            bench=WorkerBench(options, trials) if trials is not None and trials.enabled and kernels else None,
            notes=notes,
        )

    return opened


def outputs_of(arguments: Mapping[str, Any], implementations: Sequence[Implementation]) -> dict[str, Any]:
    """Return the tensors that the first kernel among the implementations may write."""
    first = [each for each in implementations if each.compiled is not None][:1]
    return written_by(arguments, first)


def written_by(arguments: Mapping[str, Any], implementations: Sequence[Implementation]) -> dict[str, Any]:
    """Return the tensors that some of the kernels among the implementations may write."""
    found: dict[str, Any] = {}
    for each in implementations:
        if each.compiled is not None:
            found |= _written(arguments, each.compiled.effects)
    return found


def _written(arguments: Mapping[str, Any], effects: Effects) -> dict[str, Any]:
    memory = memory_of(arguments)
    behind = reached(arguments, effects, device_of(arguments))
    mutated = touched(effects, behind)[0]
    return {name: tensor for name, tensor in {**memory, **behind.tensors}.items() if name in mutated}


def difference(outputs: Sequence[Any], reference: Sequence[ExpectedValue], names: Sequence[str], subject: str) -> str:
    """Return in words how outputs differ from those of a reference, "" where they agree."""
    if len(outputs) != len(reference):
        written = ", ".join(names) or "nothing"
        own = plural(len(outputs), "output")
        return f"{own} against {len(reference)} of {subject}; the kernel writes {written}, in this order"
    # Where no kernel compiled, or another one writes more, the names are not those of the outputs.
    labels = names if len(names) == len(outputs) else [f"output {number}" for number in range(len(outputs))]
    for name, got, want in zip(labels, outputs, reference, strict=True):
        if got.numel() != want.value.numel():
            return f"{name} has the shape {tuple(got.shape)}, and {subject} has {tuple(want.value.shape)}"
        if not agree(got, want):
            return f"{name} differs from that of {subject}"
    return ""


def returned(result: Any, written: Sequence[Any]) -> list[Any]:
    """Return the outputs of a function: what it returns, or what it wrote where it returns nothing.

    Raises:
        RunError: it returns something that is no tensor.
    """
    if result is None:
        return list(written)
    found = list(result) if isinstance(result, tuple | list) else [result]
    if not all(hasattr(each, "numel") for each in found):
        kinds = ", ".join(type(each).__name__ for each in found)
        raise RunError(f"It returns {kinds}; expected a tensor, or a tuple with one per output of the kernel.")
    return found


def run_function(implementation: Implementation, arguments: Mapping[str, Any]) -> Any:
    """Call a function of the user.

    Raises:
        RunError: it raises, in its own words.
    """
    function = implementation.function
    assert function is not None, "what is no kernel is a function"
    require_names(function, arguments, implementation.name)
    try:
        return function(**taken_of(function, arguments))
    except KernellabError:
        raise
    except Exception as exc:
        raise RunError(f"{implementation.name} raised {type(exc).__name__}: {first_line(exc)}") from exc


def values_of(
    implementation: Implementation, arguments: Mapping[str, Any], outputs: Sequence[Any]
) -> list[ExpectedValue]:
    """Return what others are to give beside the outputs of the first one: with bounds, where that is a function.

    It is called anew, in float64; where that is not the same, or changes its arguments, its outputs count as they are.
    """
    plain = [ExpectedValue(output.clone()) for output in outputs]
    if implementation.function is None:
        return plain
    with suppress(Exception):  # it has been called and has its outputs: what the other call raises is nobody's concern
        found = bounded_values(partial(called, implementation.function, what=implementation.name), arguments)
        bounds = list(found) if isinstance(found, tuple) else [found]
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
        """Return how outputs differ from those that came first, "" where they agree or are the first."""
        if self._first is None:
            self._first = (implementation.name, values_of(implementation, self.arguments, outputs))
            return ""
        name, reference = self._first
        return difference(outputs, reference, self.names, name)


def differences_on_cpu(
    runtime: Runtime, timeout_s: float, arguments: Mapping[str, Any], implementations: Sequence[Implementation]
) -> list[str]:
    """Run all implementations on the CPU; return for each how its outputs differ from those of the first, or ""."""
    names = list(outputs_of(arguments, implementations))
    first, problems = FirstOutputs(arguments, names), []
    for implementation in implementations:
        try:
            outputs = _run_on_cpu(runtime, timeout_s, arguments, implementation, names)
        except KernellabError as exc:
            problems.append(" ".join(exc.message.split()))
            continue
        problems.append(first.difference(implementation, outputs))
    return problems


def _run_on_cpu(
    runtime: Runtime, timeout_s: float, arguments: Mapping[str, Any], implementation: Implementation, names: list[str]
) -> list[Any]:
    launch = implementation.launch
    if launch is None:
        taken = copied(arguments)
        memory = memory_of(taken)
        return returned(run_function(implementation, taken), [memory[name] for name in names if name in memory])
    copies, _ = launched_on_copies(runtime, launch, implementation.kernel.effects, "cpu", timeout_s)
    memory = {**memory_of(copies.arguments), **copies.reached}
    return [memory[name] for name in names if name in memory]
