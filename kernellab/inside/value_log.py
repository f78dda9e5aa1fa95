"""The log of a rewritten kernel: regions of int64 words, and the recorded values that they hold."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kernellab.inside.device_texts import DTYPES, NO_ACCESS, POINTER
from kernellab.inside.rewriting import ENTRY_WORDS, REGION_HEAD, LogEvent, LoggingKernel, LogSite
from kernellab.inside.values import TORCH_NAMES
from kernellab.launch.recorded_values import Program, RecordedValue, RecordRequest, ValueKind, steps_within, summary_of
from kernellab.workers.forks_and_interrupts import import_uninterrupted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_VALUE, _ADDRESSES, _MASK = 0, 1, 2  # the parts of an access
_ACCESSES = frozenset({LogEvent.LOAD, LogEvent.STORE, LogEvent.ATOMIC})


@dataclass(frozen=True, slots=True)
class LogEntry:
    """An entry: its site, its part, and its value, None for an entry without one."""

    site: LogSite
    part: int
    dtype: str = ""
    data: NDArray[Any] | None = None


def initial_log(kernel: LoggingKernel, numbers: Sequence[int]) -> NDArray[np.int64]:
    """The buffer before the launch; ``numbers`` are those of the recorded programs in the grid."""
    np = import_uninterrupted("numpy")
    words: NDArray[Any] = np.zeros(kernel.buffer_words, np.int64)
    words[: kernel.slots] = -1
    words[: len(numbers)] = numbers
    for place in range(len(numbers)):
        start = kernel.slots + place * kernel.region_words
        words[start : start + REGION_HEAD] = REGION_HEAD, 1, kernel.region_words
    return words


def region_of(words: NDArray[np.int64], kernel: LoggingKernel, place: int) -> NDArray[np.int64]:
    """The region of a recorded program, by its place among these."""
    start = kernel.slots + place * kernel.region_words
    return words[start : start + kernel.region_words]


def needed_words(words: NDArray[np.int64], kernel: LoggingKernel, programs: int) -> int:
    """The words that the longest region would have taken."""
    return max((int(region_of(words, kernel, place)[0]) for place in range(programs)), default=REGION_HEAD)


def entries_of(region: NDArray[np.int64], sites: Sequence[LogSite]) -> Iterator[LogEntry]:
    """Yield the entries of a region, up to the first that found no room."""
    np = import_uninterrupted("numpy")
    at, end = REGION_HEAD, min(int(region[0]), len(region))
    while at + ENTRY_WORDS <= end and region[at]:
        number, part, code, rank = (int(word) for word in region[at : at + 4])
        if code < 0:
            yield LogEntry(sites[number - 1], part)
            at += ENTRY_WORDS
            continue
        shape = tuple(int(size) for size in region[at + 4 : at + 4 + rank])
        name, is_pointer = DTYPES[code % POINTER], code >= POINTER
        stored = np.dtype("<i8" if is_pointer else _stored_type(name))
        size_bytes = math.prod(shape) * stored.itemsize
        data = region[at + ENTRY_WORDS :].view(np.uint8)[:size_bytes].view(stored).reshape(shape)
        yield LogEntry(sites[number - 1], part, f"*{name}" if is_pointer else name, _values_of(data, name, is_pointer))
        at += ENTRY_WORDS + -(-size_bytes // 8)


def _stored_type(name: str) -> str:
    kinds = {"int1": "?", "bf16": "<u2", "fp16": "<f2", "fp32": "<f4", "fp64": "<f8"}
    if name in kinds:
        return kinds[name]
    if name.startswith("fp8"):
        return "u1"
    return f"<{'u' if name.startswith('u') else 'i'}{int(name.removeprefix('u').removeprefix('int')) // 8}"


def _values_of(data: NDArray[Any], name: str, is_pointer: bool) -> NDArray[Any]:
    """The elements as values; types that NumPy lacks as float32."""
    if is_pointer or name not in TORCH_NAMES:
        return data.copy()
    import torch

    bits = torch.from_numpy(data.copy())
    values: NDArray[Any] = bits.view(getattr(torch, TORCH_NAMES[name])).float().numpy()
    return values


@dataclass(frozen=True, slots=True)
class Span:
    """The memory of an argument, as the device addresses it."""

    name: str
    start: int
    size_bytes: int
    itemsize: int


@dataclass(slots=True)
class _Frame:
    """A running function, and the statement that called it.

    ``operands`` are values by statement and iteration, ``loads`` the latest ones by the site that wrote them.
    """

    function: str
    statement: int = 0
    calls: tuple[int, ...] = ()
    outer_iteration: tuple[int, ...] = ()
    latest: dict[str, int] = field(default_factory=dict)
    operands: dict[tuple[int, tuple[int, ...]], list[int]] = field(default_factory=dict)
    reads: dict[tuple[int, tuple[int, ...]], tuple[int, ...]] = field(default_factory=dict)
    loads: dict[int, int] = field(default_factory=dict)
    loops: list[int] = field(default_factory=list)

    @property
    def iteration(self) -> tuple[int, ...]:
        """The numbers of the loops around the running statement, outermost first."""
        return (*self.outer_iteration, *self.loops)

    def reads_of(self, site: LogSite) -> tuple[int, ...]:
        """The values that the statement of a site read: those before it gave values to names of its own."""
        key = site.statement, self.iteration
        if key not in self.reads:
            self.reads[key] = tuple(self.latest[name] for name in site.reads if name in self.latest)
        return self.reads[key]


@dataclass(slots=True)
class LogReader:
    """Turns entries into recorded values, in the order of execution. ``sizes`` are bytes and itemsize by argument."""

    sites: Sequence[LogSite]
    sizes: Mapping[str, tuple[int, int]]
    request: RecordRequest
    values: list[RecordedValue] = field(default_factory=list)
    sampled: int = 0
    _bytes: int = 0

    def read(self, region: NDArray[np.int64], program: Program, function: str) -> None:
        """Add the values of a program."""
        parameters = {site.name or "" for site in self.sites if site.event is LogEvent.ARGUMENT}
        _ProgramReader(self, program, [_Frame(function)], parameters).read(entries_of(region, self.sites))

    def sample_tile(self, value: RecordedValue) -> RecordedValue:
        """A value with a sample of its tile, where that is larger than is asked for."""
        most = self.request.tile_bytes if self._bytes < self.request.total_bytes else 4096
        steps = steps_within(value.shape, value.data.itemsize, most)
        self._bytes += min(value.data.nbytes, most)
        if not steps:
            return value
        self.sampled += 1
        kept = tuple(slice(None, None, step) for step in steps)
        return replace(
            value,
            data=value.data[kept].copy(),
            steps=steps,
            mask=None if value.mask is None else value.mask[kept].copy(),
            elements=None if value.elements is None else value.elements[kept].copy(),
            whole=summary_of(value.data, value.mask),
        )


@dataclass(slots=True)
class _ProgramReader:
    """The entries of one program on their way to values."""

    reader: LogReader
    program: Program
    frames: list[_Frame]
    parameters: set[str]
    spans: list[Span] = field(default_factory=list)
    access: dict[int, LogEntry] = field(default_factory=dict)

    def read(self, entries: Iterator[LogEntry]) -> None:
        for entry in entries:
            frame, event = self.frames[-1], entry.site.event
            if event is LogEvent.ARGUMENT:
                self._add_argument(entry)
            elif event is LogEvent.ENTER:
                call = self.reader.sites[entry.part - 1]
                self.frames.append(
                    _Frame(entry.site.function, call.statement, (*frame.calls, call.line), frame.iteration)
                )
            elif event is LogEvent.LEAVE:
                self.frames.pop()
            elif event is LogEvent.LOOP:
                frame.loops.append(-1)
            elif event is LogEvent.ITERATION:
                frame.loops[-1] += 1
            elif event is LogEvent.END_LOOP:
                frame.loops.pop()
            elif event in _ACCESSES:
                self._add_access(entry, frame)
            elif not self._names_its_load(entry, frame):
                self._add_named(entry, frame)

    def _add_argument(self, entry: LogEntry) -> None:
        name = entry.site.name or ""
        size = self.reader.sizes.get(name)
        if entry.dtype.startswith("*") and entry.data is not None and size is not None:
            self.spans.append(Span(name, int(entry.data), *size))

    def _add_access(self, entry: LogEntry, frame: _Frame) -> None:
        """Collect the parts of an access; its value comes last."""
        np = import_uninterrupted("numpy")
        if entry.part == NO_ACCESS:
            if entry.site.name:
                site = replace(entry.site, event=LogEvent.ASSIGNMENT)
                self._add_named(replace(entry, site=site, part=0), frame)
            return
        self.access[entry.part] = entry
        if entry.part != _VALUE:
            return
        parts, self.access = self.access, {}
        assert entry.data is not None, "an access has a value"
        addresses, mask = parts[_ADDRESSES].data if _ADDRESSES in parts else None, parts.get(_MASK)
        if addresses is None:  # through a descriptor
            value = self._value(entry, frame, entry.site.name, entry.data, entry.dtype)
            self._append(replace(value, argument=entry.site.argument), entry.site, frame)
            return
        shape = np.broadcast_shapes(addresses.shape, entry.data.shape)
        argument, elements = self._elements(np.broadcast_to(addresses, shape))
        lanes = None if mask is None or mask.data is None else np.broadcast_to(mask.data, shape).astype(bool)
        lanes = None if lanes is None or lanes.all() else lanes
        data, name = np.broadcast_to(entry.data, shape).copy(), entry.dtype
        is_truth = name == "int1" and entry.site.event is LogEvent.LOAD  # loaded as bytes, which become truth values
        value = self._value(entry, frame, None if is_truth else entry.site.name, data, name)
        if not value.is_pointer:
            value = replace(value, argument=argument)
        if is_truth:
            value = replace(value, dtype="int8", data=data.astype(np.int8))
        self._append(replace(value, elements=elements, mask=lanes), entry.site, frame)
        if is_truth and entry.site.name:
            self._add_named(replace(entry, site=replace(entry.site, event=LogEvent.ASSIGNMENT)), frame)

    def _names_its_load(self, entry: LogEntry, frame: _Frame) -> bool:
        """Give the name of an assignment to a load of its statement, where it keeps that as it is."""
        operands = frame.operands.get((entry.site.statement, frame.iteration), [])
        for number in entry.site.loads:
            at = frame.loads.get(number, -1)
            load = self.reader.values[at] if at in operands else None
            if load is None or load.dtype != entry.dtype or entry.data is None or load.shape != entry.data.shape:
                continue
            self.reader.values[at] = replace(load, name=entry.site.name)
            frame.latest[entry.site.name or ""] = at
            operands.remove(at)
            return True
        return False

    def _add_named(self, entry: LogEntry, frame: _Frame) -> None:
        assert entry.data is not None, "a name has a value"
        name = entry.site.name if not entry.part else f"{entry.site.name}[{entry.part - 1}]"
        self._append(self._value(entry, frame, name, entry.data, entry.dtype), entry.site, frame)

    def _value(self, entry: LogEntry, frame: _Frame, name: str | None, data: Any, dtype: str) -> RecordedValue:
        argument = None
        if dtype.startswith("*"):
            argument, data = self._elements(data)
        site = entry.site
        is_loop = site.event is LogEvent.LOOP_VARIABLE
        read = frame.reads_of(site)
        arguments = [n for n in site.reads if n in self.parameters and n not in frame.latest]
        operands = frame.operands.get((site.statement, frame.iteration), [])
        return RecordedValue(
            ValueKind(site.event.value),
            frame.function,
            name,
            site.file,
            site.line,
            frame.calls,
            self.program,
            frame.iteration,
            tuple(data.shape),
            dtype,
            data,
            argument=argument,
            reads=() if is_loop else tuple(dict.fromkeys([*read, *operands])),
            read_arguments=tuple(arguments) if len(self.frames) == 1 and not is_loop else (),
        )

    def _append(self, value: RecordedValue, site: LogSite, frame: _Frame) -> None:
        position = len(self.reader.values)
        self.reader.values.append(self.reader.sample_tile(value))
        if value.name is not None and site.event is not LogEvent.RETURN:
            frame.latest[value.name] = position
        if site.event is LogEvent.RETURN and len(self.frames) > 1:
            caller = self.frames[-2]
            caller.operands.setdefault((frame.statement, caller.iteration), []).append(position)
        elif value.name is None and site.event is not LogEvent.STORE:
            frame.operands.setdefault((site.statement, frame.iteration), []).append(position)
            frame.loads[site.number] = position

    def _elements(self, addresses: Any) -> tuple[str | None, Any]:
        """The argument in which pointers lie, by the first that lies in one, and their elements in it."""
        np = import_uninterrupted("numpy")
        flat = np.ravel(addresses)
        for span in self.spans:
            inside = (flat >= span.start) & (flat < span.start + span.size_bytes)
            if inside.any():
                return span.name, (addresses - span.start) // span.itemsize
        below = [span for span in self.spans if flat.size and span.start <= int(flat[0])]
        nearest = max(below, key=lambda span: span.start, default=None)
        if nearest is None:
            return None, np.asarray(addresses).astype(np.int64)
        return nearest.name, (addresses - nearest.start) // nearest.itemsize
