"""Where the implementations of one case meet: each launched once with care and compared, then timed in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from kernellab.compile.types import Compiled
from kernellab.errors import KernellabError, LaunchError, RunError, first_line
from kernellab.ir.effects import REACHED, Effects
from kernellab.launch.memory import memory_of
from kernellab.launch.poison import fill
from kernellab.launch.reached import device_of, reached
from kernellab.measure.comparison import Value, agree
from kernellab.measure.functions import called, taken_of
from kernellab.measure.implementations import touched
from kernellab.measure.launches import KernelLaunch
from kernellab.measure.reference import bounded_values
from kernellab.measure.stopwatch import DeviceState, Stopwatch, Turn, device_state


@dataclass(frozen=True, slots=True)
class Contestant:
    """One implementation: the launch of a compiled kernel, or a function of the user."""

    name: str
    launch: KernelLaunch | None = None
    compiled: Compiled | None = None
    function: Callable[..., Any] | None = None


class Arena(Protocol):
    """Launches the contestants of one case on the same inputs.

    A launch that fails raises a `KernellabError`, after which the arena goes on to work for other contestants.
    """

    @property
    def state(self) -> DeviceState:
        """How the device fared while it last timed something."""

    def try_out(self, contestant: Contestant) -> str:
        """Launch once, with care; return how the outputs differ from those of the first one tried, or ""."""

    def interleave(self, contestants: Sequence[Contestant], rounds: int) -> list[tuple[float, ...]]:
        """Return the times of each, one per round, with a flushed L2; each round launches all of them."""

    def close(self) -> None:
        """Give back what the arena holds."""


def outputs_of(arguments: Mapping[str, Any], contestants: Sequence[Contestant]) -> dict[str, Any]:
    """Return the tensors that the first kernel among the contestants may write."""
    first = [each for each in contestants if each.compiled is not None][:1]
    return written_by(arguments, first)


def written_by(arguments: Mapping[str, Any], contestants: Sequence[Contestant]) -> dict[str, Any]:
    """Return the tensors that some of the kernels among the contestants may write."""
    found: dict[str, Any] = {}
    for each in contestants:
        if each.compiled is not None:
            found |= _written(arguments, each.compiled.effects)
    return found


def _written(arguments: Mapping[str, Any], effects: Effects) -> dict[str, Any]:
    memory = memory_of(arguments)
    behind = reached(arguments, effects, device_of(arguments))
    mutated = touched(effects, behind)[0]
    return {name: tensor for name, tensor in {**memory, **behind.tensors}.items() if name in mutated}


def difference(outputs: Sequence[Any], reference: Sequence[Value], names: Sequence[str], subject: str) -> str:
    """Return in words how outputs differ from those of a reference, "" where they agree."""
    if len(outputs) != len(reference):
        written = ", ".join(names) or "nothing"
        return f"{len(outputs)} outputs meet {len(reference)} of {subject}; the kernel writes {written}, in this order"
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


def run_function(contestant: Contestant, arguments: Mapping[str, Any]) -> Any:
    """Call a function of the user.

    Raises:
        RunError: it raises, in its own words.
    """
    try:
        return called(contestant.function, arguments, contestant.name)
    except KernellabError:
        raise
    except Exception as exc:
        raise RunError(f"{contestant.name} raised {type(exc).__name__}: {first_line(exc)}") from exc


def values_of(contestant: Contestant, arguments: Mapping[str, Any], outputs: Sequence[Any]) -> list[Value]:
    """Return what others are to give beside the outputs of the first one: with bounds, where that is a function.

    It is called anew, in float64; where that is not the same, or changes its arguments, its outputs count as they are.
    """
    plain = [Value(output.clone()) for output in outputs]
    if contestant.function is None:
        return plain
    with suppress(Exception):  # it has been called and has its outputs: what the other call raises is nobody's concern
        found = bounded_values(partial(called, contestant.function, what=contestant.name), arguments)
        bounds = list(found) if isinstance(found, tuple) else [found]
        if all(agree(got, want) for got, want in zip(outputs, bounds, strict=True)):
            return bounds
    return plain


def call_hooks(launch: KernelLaunch) -> None:
    """Call what a config wants to be called before its launch.

    Raises:
        RunError: a hook raises, in its own words.
    """
    for hook in launch.before:
        try:
            hook({**launch.arguments, **launch.options})
        except Exception as exc:
            raise RunError(f"The pre_hook of a config raised {type(exc).__name__}: {first_line(exc)}.") from exc


@dataclass(slots=True)
class GpuArena:
    """The arena on a GPU: first launches go through the lab, the timed ones happen in this process.

    ``arguments`` belong to the arena: their tensors are written to; what they reach is the user's. ``outputs`` are
    compared; ``written`` is all that some kernel writes, and ``read`` names what some kernel reads.
    """

    watch: Stopwatch
    flying: Callable[[], AbstractContextManager[Any]]
    arguments: Mapping[str, Any]
    outputs: Mapping[str, Any]
    written: Mapping[str, Any]
    read: frozenset[str]
    state: DeviceState = field(default_factory=DeviceState)
    _before: list[tuple[Any, Any]] = field(default_factory=list)
    _reference: tuple[str, list[Value]] | None = None
    _ready: dict[int, Turn] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kept = [t for name, t in self.written.items() if name in self.read or name.startswith(REACHED)]
        self._before = [(tensor, tensor.clone()) for tensor in kept]

    def try_out(self, contestant: Contestant) -> str:
        try:
            return self._tried(contestant)
        except RuntimeError as exc:  # of torch: no memory for a copy of the outputs, a device after a fault
            raise RunError(f"{contestant.name} cannot be tried: {first_line(exc)}.") from exc

    def _tried(self, contestant: Contestant) -> str:
        for name, tensor in self.written.items():
            if name not in self.read:
                fill(tensor)
        self._restore(contestant.launch)
        outputs = self._try(contestant) if contestant.launch is not None else self._call(contestant)
        if self._reference is None:
            self._reference = (contestant.name, values_of(contestant, self.arguments, outputs))
            return ""
        name, reference = self._reference
        return difference(outputs, reference, list(self.outputs), name)

    def interleave(self, contestants: Sequence[Contestant], rounds: int) -> list[tuple[float, ...]]:
        try:
            times = self.watch.turns([self._ready[id(each)] for each in contestants], rounds, self._look)
        except RuntimeError as exc:
            names = ", ".join(each.name for each in contestants)
            raise RunError(f"Timing {names} failed: {first_line(exc)}") from exc
        return [tuple(each) for each in times]

    def close(self) -> None:
        """Leave what kernels work on in place as it was: ``inputs`` may give the same tensor to the next case."""
        with suppress(RuntimeError):  # of a device after a fault
            self._restore()
        self._ready.clear()  # they hold the arena, and it all of the inputs
        self._before.clear()
        self._reference = None

    def _look(self) -> None:
        self.state = device_state()

    def _restore(self, launch: KernelLaunch | None = None) -> None:
        """Bring back what a launch must find, and call the hooks of its config."""
        for tensor, held in self._before:
            tensor.copy_(held)
        if launch is not None:
            call_hooks(launch)

    def _try(self, contestant: Contestant) -> list[Any]:
        """Launch a kernel through the lab, in the GPU worker first where it is new."""
        from kernellab._triton.artifact import relauncher

        launch = contestant.launch
        assert launch is not None, "a kernel has a launch"
        with self.flying():
            handle = launch.function[launch.grid](**launch.arguments, **launch.options)
        if handle is None:
            raise LaunchError(f"The grid of {contestant.name} is {launch.grid}: nothing is launched.")
        handle = handle.result() if hasattr(handle, "result") else handle
        relaunch = relauncher(handle, launch.grid, tuple(launch.arguments.values()))
        self._ready[id(contestant)] = Turn(relaunch, lambda: self._restore(launch))
        if contestant.compiled is None:
            return [tensor for name, tensor in memory_of(launch.arguments).items() if name in self.outputs]
        return list(_written(launch.arguments, contestant.compiled.effects).values())

    def _call(self, contestant: Contestant) -> list[Any]:
        """Call a function, on the arena's tensors; what it changes of the inputs is refused."""
        import torch

        function = contestant.function
        assert function is not None, "what is no kernel is a function"
        inputs = {name: each for name, each in memory_of(self.arguments).items() if name not in self.written}
        versions = {name: each._version for name, each in inputs.items()}
        result = run_function(contestant, self.arguments)
        try:
            torch.cuda.synchronize()
        except RuntimeError as exc:
            raise RunError(f"{contestant.name} failed on the GPU: {first_line(exc)}") from exc
        changed = [name for name, version in versions.items() if inputs[name]._version != version]
        if changed:
            raise RunError(f"{contestant.name} changes {changed[0]} in place, which the others read; clone it first.")
        again = partial(function, **taken_of(function, self.arguments))
        self._ready[id(contestant)] = Turn(again, self._restore)
        return returned(result, list(self.outputs.values()))
