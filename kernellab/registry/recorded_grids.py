"""The grid of a kernel as a function of its arguments: as its user wrote it, else read off its launches."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kernellab.store import Launch

Extent = Callable[[Launch], int | None]


@dataclass(frozen=True, slots=True)
class GridText:
    """A grid as the text of a lambda; ``inferred`` from that many launches, 0 where the user wrote it so."""

    text: str
    inferred: int = 0


def grid_text(launches: Sequence[Launch]) -> GridText | None:
    """Return the grid of the latest launch that tells it, or None where no formula fits all launches."""
    for launch in reversed(launches):
        if launch.grid_text and _varies(launch.grid_text):
            return GridText(launch.grid_text)
    ran = [launch for launch in launches if launch.grid is not None]
    if not ran:
        return None
    axes = [_axis(ran, axis) for axis in range(3)]
    if None in axes:
        return None
    while len(axes) > 1 and axes[-1] == "1":
        axes.pop()
    return GridText(f"lambda meta: ({', '.join(map(str, axes))},)", len(ran))


def _varies(text: str) -> bool:
    return any(character.isalpha() for character in text.partition(":")[2])


def _axis(launches: Sequence[Launch], axis: int) -> str | None:
    wanted = [launch.grid[axis] for launch in launches if launch.grid is not None]
    if set(wanted) == {1}:
        return "1"
    for text, extent in _candidates(launches[-1]):
        if [extent(launch) for launch in launches] == wanted:
            return text
    return None


def _candidates(launch: Launch) -> Iterator[tuple[str, Extent]]:
    """Yield formulas, the likeliest first: quotients by a block size, then sizes themselves, then products of two."""
    sizes, blocks = list(_sizes(launch)), list(_blocks(launch))
    quotients = [_quotient(size, block) for size in sizes for block in blocks]
    yield from quotients
    yield from sizes
    for first, second in itertools.product([*quotients, *sizes], repeat=2):
        if first[0] != second[0]:
            yield f"{first[0]} * {second[0]}", _product(first[1], second[1])


def _sizes(launch: Launch) -> Iterator[tuple[str, Extent]]:
    for argument in launch.arguments:
        if argument.kind == "scalar" and not argument.constexpr and type(argument.value) is int:
            yield argument.name, _scalar(argument.name)
    for argument in launch.arguments:
        if argument.kind == "tensor":
            for axis in range(len(argument.shape)):
                yield f"{argument.name}.shape[{axis}]", _shape(argument.name, axis)
            if len(argument.shape) > 1:
                yield f"{argument.name}.numel()", _shape(argument.name, None)
    for argument in launch.arguments:
        if argument.constexpr and type(argument.value) is int:
            yield f'meta["{argument.name}"]', _scalar(argument.name)


def _blocks(launch: Launch) -> Iterator[tuple[str, Extent]]:
    for argument in launch.arguments:
        if argument.constexpr and type(argument.value) is int and argument.value > 1:
            yield f'meta["{argument.name}"]', _scalar(argument.name)


def _quotient(size: tuple[str, Extent], block: tuple[str, Extent]) -> tuple[str, Extent]:
    def extent(launch: Launch) -> int | None:
        above, below = size[1](launch), block[1](launch)
        return None if above is None or not below else -(-above // below)

    return f"triton.cdiv({size[0]}, {block[0]})", extent


def _product(first: Extent, second: Extent) -> Extent:
    def extent(launch: Launch) -> int | None:
        left, right = first(launch), second(launch)
        return None if left is None or right is None else left * right

    return extent


def _scalar(name: str) -> Extent:
    def extent(launch: Launch) -> int | None:
        value = next((a.value for a in launch.arguments if a.name == name), None)
        return value if type(value) is int else None

    return extent


def _shape(name: str, axis: int | None) -> Extent:
    def extent(launch: Launch) -> int | None:
        shape = next((a.shape for a in launch.arguments if a.name == name), ())
        if axis is None:
            return math.prod(shape)
        return shape[axis] if axis < len(shape) else None

    return extent
