"""Between which values the integers that a kernel loads lie, and what a trial launch says of others in between.

A kernel whose loaded values decide what it touches is tried with some of them. `kernellab.ir.containment` shows whether
others within the same ranges can lead it out of its arguments. If they cannot, the ranges are kept with the trial, and
a later session need only look whether its own values lie within.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kernellab.compile.types import Compiled
from kernellab.ir.containment import ArgumentMemory, KnownLaunch, NotContained, deciding_loads, require_contained
from kernellab.launch.arguments import ArgumentSpec, ScalarSpec, TensorSpec, TupleSpec, tensors_of
from kernellab.launch.calls import Grid3
from kernellab.launch.memory import memory_of, span_of
from kernellab.store import Ranges

_SIGNED = {1: "int8", 2: "int16", 4: "int32", 8: "int64"}
Specs = Iterable[tuple[str, ArgumentSpec]]


def ranges_held(arguments: Mapping[str, Any], names: Iterable[str]) -> Ranges | None:
    """Return the least and the greatest integer in each of some tensors, their bits read as signed.

    Everything from the first element to the last counts, also what a view leaves out in between. Waits for the current
    stream, once. None where one of the names is no tensor of integers with elements.
    """
    import torch  # only where there is a GPU

    memory, found = memory_of(arguments), list[Any]()
    for name in (names := list(names)):
        tensor = memory.get(name)
        if not isinstance(tensor, torch.Tensor) or not tensor.numel() or not _holds_integers(tensor):
            return None
        start, end = span_of(tensor)
        signed = getattr(torch, _SIGNED[tensor.element_size()])
        elements = tensor.detach().as_strided(((end - start) // tensor.element_size(),), (1,)).view(signed)
        found += [each.to(torch.int64) for each in torch.aminmax(elements)]
    values = torch.stack(found).tolist() if found else []
    return {name: (values[2 * i], values[2 * i + 1]) for i, name in enumerate(names)}


def lie_within(ranges: Ranges, arguments: Mapping[str, Any]) -> bool:
    """Tell whether the tensors of a launch hold integers within some ranges."""
    held = ranges_held(arguments, ranges)
    return held is not None and all(
        low <= held[name][0] and held[name][1] <= high for name, (low, high) in ranges.items()
    )


def lasting_ranges(
    compiled: Compiled,
    arguments: Mapping[str, Any],
    grid: Grid3,
    specs: Specs,
    sizes_bytes: tuple[int, ...],
    before: Ranges | None,
) -> Ranges | None:
    """Return the ranges of loaded values that a launch which went well holds for, None where it says nothing of others.

    ``specs`` are the arguments as data, ``sizes_bytes`` the storages by index. The ranges are those of the launch, wide
    enough for those kept ``before`` it where that is shown, too.
    """
    pairs = list(specs)
    views = {key: view for name, spec in pairs for key, view in tensors_of(name, spec)}
    written = {views[name].storage for name in compiled.effects.mutated if name in views}
    loads, memory = deciding_loads(compiled.graph), memory_of(arguments)
    deciding = {site.argument for site in compiled.effects.sites if site.index in loads}
    names = sorted(
        name
        for name in deciding
        if name in views and name in memory and views[name].storage not in written and _holds_integers(memory[name])
    )
    held = ranges_held(arguments, names)
    if held is None:
        return None
    wider = held if before is None or before.keys() != held.keys() else _joined(held, before)
    for ranges in (wider, held):
        given = KnownLaunch(grid, _numbers(pairs), _extents(pairs, sizes_bytes), ranges)
        try:
            require_contained(compiled.graph, given)
        except NotContained:
            continue
        return ranges
    return None


def _holds_integers(tensor: Any) -> bool:
    return not tensor.dtype.is_floating_point and not tensor.dtype.is_complex and tensor.element_size() in _SIGNED


def _joined(one: Ranges, other: Ranges) -> Ranges:
    return {name: (min(low, other[name][0]), max(high, other[name][1])) for name, (low, high) in one.items()}


def _numbers(specs: Specs) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, spec in specs:
        if isinstance(spec, TupleSpec):
            found |= _numbers((f"{name}[{i}]", item) for i, item in enumerate(spec.items))
        elif isinstance(spec, ScalarSpec) and isinstance(spec.value, int):
            found[name] = int(spec.value)
    return found


def _extents(specs: Specs, sizes_bytes: tuple[int, ...]) -> dict[str, ArgumentMemory]:
    found: dict[str, ArgumentMemory] = {}
    for name, spec in specs:
        if isinstance(spec, TupleSpec):
            found |= _extents(((f"{name}[{i}]", item) for i, item in enumerate(spec.items)), sizes_bytes)
        elif isinstance(spec, TensorSpec):
            ahead = spec.offset_bytes
            found[name] = ArgumentMemory(ahead, sizes_bytes[spec.storage] - ahead, spec.span_bytes, spec.itemsize)
    return found
