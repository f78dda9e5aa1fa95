"""CUDA graphs of torch: which launches each has captured, and how often it is replayed."""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kernellab.harvest.counting import CaseCount
from kernellab.harvest.sampling import NO_SAMPLER, DeviceSampler, SampledTimes

MOST_GRAPHS = 1024


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
