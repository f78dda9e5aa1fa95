"""Counts of launches by kernel and case, within a bounded number of cases, and of replays of torch's CUDA graphs."""

from __future__ import annotations

import re
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from kernellab._triton.launch_hooks import LaunchedKernel, launched_kernel
from kernellab.harvest.sampling import NO_SAMPLER, DeviceSampler, SampledTimes
from kernellab.registry.launches_to_store import aliases_among, argument_of
from kernellab.source import INTEGER_OPTIONS
from kernellab.store import RecordedLaunch
from kernellab.target import device_name

MOST_CASES = 4096
MOST_KERNELS = 1024
MOST_GRAPHS = 1024


class Captures(Protocol):
    """The CUDA graphs that are being captured: ``running`` is empty while there is none."""

    running: dict[Any, Any]

    def capturing(self) -> Counter[CaseCount] | None:
        """The launches of the graph that the current stream captures, or None."""


@dataclass(slots=True, eq=False)
class CaseCount:
    """The launches of one case: a compiled kernel with a grid, shapes, strides and integers.

    ``launches`` ran when they were made; ``captured`` went into CUDA graphs; ``trials`` are those of ``launches`` by
    which an autotuner timed its configs.
    """

    kernel: LaunchedKernel
    launch: RecordedLaunch
    launches: int = 0
    captured: int = 0
    replayed: int = 0
    trials: int = 0
    times: SampledTimes = field(default_factory=SampledTimes)


@dataclass(slots=True)
class _KernelCounts:
    kernel: LaunchedKernel
    key_of: Callable[..., Any]
    cases: dict[Any, CaseCount] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class LaunchCounter:
    """Counts the launches of a process by case; a `LaunchObserver`.

    Launches that differ in floats alone are one case. Beyond ``most_cases`` cases or ``most_kernels`` compiled kernels,
    they are counted by the name of their kernel in ``rest``, under "" beyond ``most_kernels`` names.
    """

    captures: Captures
    sampler: DeviceSampler = NO_SAMPLER
    most_cases: int = MOST_CASES
    most_kernels: int = MOST_KERNELS
    cases: list[CaseCount] = field(default_factory=list)
    rest: Counter[str] = field(default_factory=Counter)
    _kernels: dict[Any, _KernelCounts] = field(default_factory=dict)
    _lock: Any = field(default_factory=threading.RLock)

    def before_launch(self, kernel: Any, grid: Any, args: tuple[Any, ...], is_trial: bool, /) -> None:
        """Count a launch, and begin to time it where its case is due for a sample."""
        counts = self._kernels.get(kernel)
        if counts is None:
            counts = self._add_kernel(kernel)
            if counts is None:
                return
        try:
            case = counts.cases.get(key := counts.key_of(grid, *args))
        except (AttributeError, TypeError):  # an object with an address and no shape, or a grid that is a list
            case = counts.cases.get(key := general_key(grid, args, counts.kernel.positions))
        with self._lock:
            if case is None:
                case = self._add_case(counts, key, grid, args)
                if case is None:
                    return
            if self.captures.running and (graph := self.captures.capturing()) is not None:
                case.captured += 1
                graph[case] += 1
                return
            case.launches += 1
            case.trials += is_trial
            is_due = not is_trial and case.launches >= case.times.next_at
        if is_due:
            self.sampler.begin(case.times, case.launches)

    def after_launch(self, metadata: Any = None, /) -> None:
        """End the sample that this thread has begun."""
        if self.sampler.is_open:
            self.sampler.end()

    def _add_kernel(self, kernel: Any) -> _KernelCounts | None:
        with self._lock:
            if len(self._kernels) >= self.most_kernels:
                self._count_rest(getattr(kernel, "name", ""))
                return None
            described = launched_kernel(kernel)
            return self._kernels.setdefault(kernel, _KernelCounts(described, key_function(described)))

    def _add_case(self, counts: _KernelCounts, key: Any, grid: Any, args: tuple[Any, ...]) -> CaseCount | None:
        if key in counts.cases:  # another thread was faster
            return counts.cases[key]
        whole = _with_three_extents(key)
        if whole in counts.cases:
            return counts.cases.setdefault(key, counts.cases[whole])
        if len(self.cases) >= self.most_cases:
            self._count_rest(counts.kernel.name)
            return None
        case = CaseCount(counts.kernel, recorded_launch(counts.kernel, grid, args))
        counts.cases[key] = counts.cases[whole] = case
        self.cases.append(case)
        return case

    def _count_rest(self, name: str) -> None:
        self.rest[name if name in self.rest or len(self.rest) < self.most_kernels else ""] += 1


def _with_three_extents(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """The key with all three extents of its grid; a launch may name fewer."""
    grid, *rest = key
    return (grid if grid is None else (*grid, 1, 1)[:3], *rest)


def key_function(kernel: LaunchedKernel) -> Callable[..., Any]:
    """A function of a grid and arguments that returns the key of their case, written for the types of a kernel.

    The key has shapes, strides and integers; not floats, addresses, and what the kernel was compiled for.
    """
    types = dict(kernel.signature)
    parts = ["grid"]
    for position in kernel.positions:
        value, kind = f"a{position}", types.get(kernel.names[position], "")
        if kind.startswith("*"):
            parts += [f"{value}.shape", f"{value}.stride()"]
        elif kind.startswith("tensordesc"):
            parts += [f"tuple({value}.shape)", f"tuple({value}.strides)"]
        elif re.fullmatch(r"[iu]\d+", kind):
            parts.append(value)
        elif not re.fullmatch(r"constexpr|b?fp?\d+", kind):
            return lambda grid, *args: general_key(grid, args, kernel.positions)
    names = ", ".join(f"a{position}" for position in range(len(kernel.names)))
    function: Callable[..., Any] = eval(f"lambda grid, {names}, *_: ({', '.join(parts)},)")
    return function


def general_key(grid: Any, args: tuple[Any, ...], positions: Sequence[int]) -> tuple[Any, ...]:
    """The key of a case with arguments of any types, such as tuples."""
    key: list[Any] = [None if grid is None else tuple(grid)]
    for position in positions:
        value = args[position]
        if type(value) is float:
            continue
        if (shape := getattr(value, "shape", None)) is not None:
            strides = getattr(value, "stride", None)
            key += [tuple(shape), strides() if strides is not None else tuple(value.strides)]
        elif isinstance(value, tuple):
            key.append(general_key((), value, range(len(value))))
        else:
            key.append(value if isinstance(value, int | None) else str(type(value)))
    return tuple(key)


def recorded_launch(kernel: LaunchedKernel, grid: Any, args: tuple[Any, ...]) -> RecordedLaunch:
    """A launch as plain data, without a look into its tensors."""
    values = {**dict(zip(kernel.names, args, strict=False)), **kernel.constants}
    aliases = aliases_among(values)
    arguments = tuple(
        replace(argument_of(name, value, reads=False), constexpr=name in kernel.constants, alias=aliases.get(name, ""))
        for name, value in values.items()
    )
    x, y, z = (*(kernel.grid_of(args) if kernel.grid_of is not None else grid), 1, 1)[:3]
    is_on_gpu = any(argument.device == "cuda" for argument in arguments if argument.kind == "tensor")
    return RecordedLaunch(
        signature=kernel.signature,
        arguments=arguments,
        options={name: kernel.options[name] for name in INTEGER_OPTIONS if kernel.options.get(name) is not None},
        grid=(int(x), int(y), int(z)),
        target=kernel.target,
        where="gpu" if is_on_gpu else "interpreter",
        result=kernel.digest,
        device=device_name() if is_on_gpu else "",
    )


@dataclass(slots=True, eq=False)
class GraphCount:
    """The launches in one graph by case, its replays, and the sampled times of these."""

    cases: Counter[CaseCount] = field(default_factory=Counter)
    replays: int = 0
    times: SampledTimes = field(default_factory=SampledTimes)


@dataclass(slots=True, eq=False)
class GraphCounter:
    """Follows the graphs of a class like `torch.cuda.CUDAGraph`, up to ``most_graphs`` that are alive.

    ``unknown_replays`` are those of graphs that were captured before, or beyond the limit.
    """

    is_capturing: Callable[[], bool]
    sampler: DeviceSampler = NO_SAMPLER
    most_graphs: int = MOST_GRAPHS
    graphs: list[GraphCount] = field(default_factory=list)
    unknown_replays: int = 0
    _of_graph: weakref.WeakKeyDictionary[Any, GraphCount] = field(default_factory=weakref.WeakKeyDictionary)
    running: dict[Any, tuple[int, GraphCount]] = field(default_factory=dict)
    _lock: Any = field(default_factory=threading.RLock)

    def capturing(self) -> Counter[CaseCount] | None:
        """The launches of the graph that the current stream captures, or None."""
        if not self.running or not self.is_capturing():
            return None
        captures = [*self.running.values()]
        own = [count for thread, count in captures if thread == threading.get_ident()]
        return (own[-1] if own else captures[-1][1]).cases  # a backward pass launches from a thread of torch

    @contextmanager
    def watch(self, graph_class: Any) -> Iterator[None]:
        """Follow the captures and replays of a class of graphs inside a with statement."""
        names = ("capture_begin", "capture_end", "replay")
        before = {name: getattr(graph_class, name) for name in names}
        own = {name: vars(graph_class).get(name) for name in names}

        def capture_begin(graph: Any, *args: Any, **named: Any) -> None:
            before["capture_begin"](graph, *args, **named)
            with self._lock:
                self.running[id(graph)] = threading.get_ident(), GraphCount()

        def capture_end(graph: Any) -> None:
            with self._lock:
                _, count = self.running.pop(id(graph), (0, None))
            before["capture_end"](graph)
            if count is not None:
                self._add(graph, count)

        def replay(graph: Any) -> None:
            self._replay(graph, lambda: before["replay"](graph))

        for name, function in (("capture_begin", capture_begin), ("capture_end", capture_end), ("replay", replay)):
            setattr(graph_class, name, function)
        try:
            yield
        finally:
            for name in names:
                if own[name] is None:
                    delattr(graph_class, name)
                else:
                    setattr(graph_class, name, own[name])

    def fold(self) -> None:
        """Add the replays of graphs that are gone to the counts of their cases, and forget these graphs."""
        with self._lock:
            alive = {id(count) for count in self._of_graph.values()}
            gone = [count for count in self.graphs if id(count) not in alive]
            for count in gone:
                for case, launches in count.cases.items():
                    case.replayed += launches * count.replays
            self.graphs = [count for count in self.graphs if id(count) in alive]

    def _add(self, graph: Any, count: GraphCount) -> None:
        with self._lock:
            if len(self.graphs) >= self.most_graphs:
                self.fold()
            if len(self.graphs) < self.most_graphs:
                self.graphs.append(count)
                self._of_graph[graph] = count

    def _replay(self, graph: Any, replay: Callable[[], None]) -> None:
        with self._lock:
            count = self._of_graph.get(graph)
            if count is None:
                self.unknown_replays += 1
            else:
                count.replays += 1
        is_due = count is not None and bool(count.cases) and count.replays >= count.times.next_at
        if count is not None and is_due:
            self.sampler.begin(count.times, count.replays)
        replay()
        if is_due:
            self.sampler.end()
