"""Recorded launches made again: arguments, constants, and the grid, as written or inferred from launches."""

from __future__ import annotations

import ast
import builtins
import itertools
import math
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernellab.errors import UsageError, first_line
from kernellab.source import grid_of_formula
from kernellab.store import Argument, RecordedLaunch, Result, Store, Version

_MOST_LAUNCHES = 1000  # of a version; each is decoded and checked
_LATEST_LAUNCHES = 16  # of which one is a launch of the user, but where many trials follow


@dataclass(frozen=True, slots=True)
class RecordedVersion:
    """A version, its launches (the latest last), and the compile result of the last of them."""

    version: Version
    launches: tuple[RecordedLaunch, ...]
    result: Result | None

    @property
    def launch(self) -> RecordedLaunch | None:
        """The latest launch, or None where none is kept."""
        return self.launches[-1] if self.launches else None


def latest_launch(store: Store, version: Version) -> RecordedLaunch | None:
    """The launch of `recorded_version`, which reads 1,000 only where no launch of the user is in the last 16."""
    return _as_recorded(store, version, lambda launch: launch.is_launch).launch


def recorded_grid(store: Store, version: Version) -> GridText | None:
    """The `grid_text` of a version, which reads 1,000 launches only where the user wrote none for the last one."""
    return grid_text(_as_recorded(store, version, lambda launch: launch.is_launch and launch.grid_text).launches)


def _as_recorded(store: Store, version: Version, suffices: Callable[[RecordedLaunch], object]) -> RecordedVersion:
    """The `recorded_version` of the last 16 launches if its launch suffices; an older one may be the user's."""
    recorded = recorded_version(store, version, most=_LATEST_LAUNCHES)
    if recorded.launch is not None and suffices(recorded.launch):
        return recorded
    return recorded_version(store, version)


def recorded_version(store: Store, version: Version, *, most: int = _MOST_LAUNCHES) -> RecordedVersion:
    """A version with those of its latest launches, at most ``most``, that have the parameters of the latest.

    Trials by `Lab.run` count only where there is no launch, and what was compiled alone, such as the best config of a
    tuning without a GPU, only where nothing ran. What was compiled for stand-ins is not a launch.
    """
    latest = store.history.launches(version.id, most=most)
    known = [row for row in latest if not row.launch.has_stand_ins]
    ran = [row for row in known if row.launch.by == "run" and row.launch.where != "nowhere"]
    rows = [row for row in known if row.launch.is_launch] or ran or known
    names = [[argument.name for argument in row.launch.arguments] for row in rows]
    launches = tuple(row.launch for row, own in zip(rows, names, strict=True) if own == names[-1])
    results = store.history.results(version.id, launches[-1].result) if launches else []
    result = results[-1][1] if results else None
    launches = tuple(launch if _holds_again(launch, result) else replace(launch, check="") for launch in launches)
    return RecordedVersion(version, launches, result)


def values_of(launch: RecordedLaunch) -> dict[str, Any]:
    """The constexprs and options of a launch as values.

    Raises:
        UsageError: a constexpr was something of which only the type is known.
    """
    import triton.language as tl  # reading the store loads no Triton

    from kernellab._triton.loading import load

    values: dict[str, Any] = {}
    for argument in (argument for argument in launch.arguments if argument.constexpr):
        if argument.kind == "dtype":
            values[argument.name] = tl.dtype(argument.value)
        elif argument.kind == "scalar":
            values[argument.name] = argument.value
        elif argument.source is not None:
            values[argument.name] = load(argument.source[0]).value(argument.source[1])
        else:
            raise UsageError(f"{argument.name} was {argument.value}, which cannot be made again.")
    return {**values, **options_of(launch)}


def _holds_again(launch: RecordedLaunch, result: Result | None) -> bool:
    """Whether the reference of a launch is valid for regenerated inputs.

    Where outputs depend on what they held before, it names them, or these are made anew with the same values.
    """
    if not launch.check or result is None or not result.complete:
        return False
    used = {node.id for node in ast.walk(ast.parse(launch.check)) if isinstance(node, ast.Name)}
    updated = {*result.reads, *result.atomics} & {*result.writes, *result.atomics}
    tensors = {tensor.name.removesuffix(".base"): tensor for tensor in tensors_among(launch.arguments)}
    return all(
        name in tensors
        and tensors[name].is_updated
        and (name.partition("[")[0] in used or has_same_values(tensors[name]))
        for name in updated
    )


def has_same_values(tensor: Argument) -> bool:
    """Whether a regenerated tensor has the recorded one's values."""
    return tensor.values is not None or (tensor.low is not None and tensor.low == tensor.high)


def random_tensor(shape, stride, dtype, low, high, generator, device):  # type: ignore[no-untyped-def]
    """A tensor of this layout with random values from ``low`` to ``high``."""
    import torch

    size = 1 + sum((extent - 1) * step for extent, step in zip(shape, stride, strict=True)) if 0 not in shape else 0
    if dtype.is_floating_point:
        flat = torch.rand(size, generator=generator, device=generator.device) * (high - low) + low
    else:
        flat = torch.randint(int(low), int(high) + 1, (size,), generator=generator, device=generator.device)
    return flat.to(dtype).to(device).as_strided(shape, stride)


def listed_tensor(values, shape, dtype, device):  # type: ignore[no-untyped-def]
    """A contiguous tensor of exactly these values."""
    import torch

    return torch.tensor(values, dtype=dtype, device=device).reshape(shape)


def regenerated_inputs(launch: RecordedLaunch, device: str, *, fills_floats: bool = True) -> dict[str, Any]:
    """The inputs of a launch, regenerated as by the exported ``inputs``."""
    return regenerated_arguments(given_arguments(launch), device, 0, fills_floats=fills_floats)


def regenerated_arguments(
    given: Sequence[Argument], device: str, seed: int, *, fills_floats: bool = True
) -> dict[str, Any]:
    """New arguments of these layouts by name, as by the exported function.

    Without ``fills_floats``, floating-point tensors have any contents, which suffices to compile.

    Raises:
        UsageError: an argument cannot be made anew, or the machine has no room for it.
    """
    import torch  # keeps `import kernellab` light

    _require_room(tensors_among(argument for argument in given if not argument.alias), device)
    generator = torch.Generator().manual_seed(seed)
    arguments: dict[str, Any] = {}
    for argument in given:
        try:
            arguments[argument.name] = _value(argument, arguments, generator, device, fills_floats)
        except (RuntimeError, ValueError, OverflowError) as exc:
            raise UsageError(
                f"{argument.name} of the recorded launch cannot be made again: {first_line(exc)}."
            ) from exc
    return arguments


def _value(argument: Argument, made: Mapping[str, Any], generator: Any, device: str, fills_floats: bool) -> Any:
    if argument.alias:
        return made[argument.alias]
    match argument.kind:
        case "tensor":
            return _tensor(argument, generator, device, fills_floats)
        case "tuple":
            return tuple(_value(member, made, generator, device, fills_floats) for member in argument.members)
        case "descriptor":
            return _descriptor(argument, _value(argument.members[0], made, generator, device, fills_floats))
        case "dtype":
            import triton.language as tl

            return tl.dtype(argument.value)
        case "scalar":
            return argument.value
    raise UsageError(unmakable_message(argument))


def _descriptor(argument: Argument, base: Any) -> Any:
    """A descriptor of a tensor; Gluon's where it has a shared-memory layout."""
    if argument.value is None:
        from triton.tools.tensor_descriptor import TensorDescriptor

        return TensorDescriptor.from_tensor(base, list(argument.block))
    from kernellab._triton.drivers import gluon_descriptor

    return gluon_descriptor(base, list(argument.block), argument.value)


def _tensor(argument: Argument, generator: Any, device: str, fills_floats: bool) -> Any:
    import torch

    dtype = getattr(torch, argument.dtype)
    if dtype.is_floating_point and not fills_floats:
        return torch.empty_strided(argument.shape, argument.stride, dtype=dtype, device=device)
    if argument.values is not None:
        return listed_tensor(list(argument.values), argument.shape, dtype, device)  # type: ignore[no-untyped-call]
    low, high = bounds_of(argument)
    return random_tensor(argument.shape, argument.stride, dtype, low, high, generator, device)  # type: ignore[no-untyped-call]


def bounds_of(argument: Argument) -> tuple[float, float]:
    """The least and the largest value of a regenerated tensor."""
    return (0.0, 1.0) if argument.low is None or argument.high is None else (argument.low, argument.high)


def _require_room(tensors: Sequence[Argument], device: str) -> None:
    """Raise `UsageError` unless the tensors fit the device, and the random numbers for one the host."""
    import torch

    held, numbers = 0, 0
    for tensor in tensors:
        last = sum((extent - 1) * step for extent, step in zip(tensor.shape, tensor.stride, strict=True))
        span = 0 if 0 in tensor.shape else last + 1
        held += span * int(getattr(torch, tensor.dtype).itemsize)
        numbers = max(numbers, span * 8)
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    room = host - numbers if device == "cpu" else int(torch.cuda.mem_get_info()[1])
    if held > room or numbers > host:
        raise UsageError(f"The tensors of the recorded launch take {held:,} bytes, for which {device} has no room.")


def given_arguments(launch: RecordedLaunch) -> list[Argument]:
    """The arguments that are not constexprs, in the order of the kernel."""
    return [argument for argument in launch.arguments if not argument.constexpr]


def options_of(launch: RecordedLaunch) -> dict[str, Any]:
    """The options of a launch that are set; one CTA, the default, is left out."""
    return {n: v for n, v in launch.options.items() if v is not None and (n, v) != ("num_ctas", 1)}


def unmakable_message(argument: Argument) -> str:
    """The reason that an argument cannot be regenerated, with a remedy."""
    what = f"the function {argument.value}" if argument.kind == "function" else f"a {argument.value}"
    return f"{argument.name} was {what}, which an exported module cannot make; export it without its launch."


def tensors_among(arguments: Iterable[Argument]) -> list[Argument]:
    """The tensors of arguments, with those under descriptors and in tuples."""
    return [t for a in arguments for t in ((a,) if a.kind == "tensor" else tensors_among(a.members))]


Formula = tuple[str, tuple[int | None, ...]]
"""The text of a number that a launch gives, and what it was in each launch; None where it has no value."""


@dataclass(frozen=True, slots=True)
class GridText:
    """A grid as the text of a lambda; ``inferred`` counts the launches it follows from, 0 if the user wrote it."""

    text: str
    inferred: int = 0

    @property
    def of_meta(self) -> str:
        """The text with parameters as members of ``meta``, valid without the parameters' names in scope."""
        node = ast.parse(self.text, mode="eval")
        own = {"triton", "torch", "math", "meta", *dir(builtins)}
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and part.id not in own:
                part.id = f"meta['{part.id}']"
        return ast.unparse(node)

    def grid_for(self, arguments: Mapping[str, Any]) -> Any:
        """The grid for these arguments and meta-parameters; see `grid_of_formula`."""
        return grid_of_formula(self.text, arguments)


def grid_text(launches: Sequence[RecordedLaunch]) -> GridText | None:
    """The user's grid function of the latest launch with one; else the likeliest formula that fits all launches.

    None where there is none.
    """
    for launch in reversed(launches):
        if launch.grid_text:
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


def _axis(launches: Sequence[RecordedLaunch], axis: int) -> str | None:
    wanted = tuple(launch.grid[axis] for launch in launches if launch.grid is not None)
    if set(wanted) == {1}:
        return "1"
    return next((text for text, values in _candidates(launches) if values == wanted), None)


def _candidates(launches: Sequence[RecordedLaunch]) -> Iterator[Formula]:
    """Formulas, the likeliest first: quotients by a block size, then sizes, then products of two."""
    sizes = list(size_formulas(launches))
    blocks = [size for size in sizes if size[0].startswith("meta[") and (size[1][-1] or 0) > 1]
    quotients = [
        _combine_formulas(f"triton.cdiv({size[0]}, {block[0]})", size, block, lambda n, b: -(-n // b) if b else None)
        for size in sizes
        for block in blocks
    ]
    yield from quotients
    yield from sizes
    for first, second in itertools.product([*quotients, *sizes], repeat=2):
        if first[0] != second[0]:
            yield _combine_formulas(f"{first[0]} * {second[0]}", first, second, operator.mul)


def size_formulas(launches: Sequence[RecordedLaunch]) -> Iterator[Formula]:
    """The sizes among the arguments: numbers, extents of tensors, then constexprs, with their values per launch."""
    arguments = launches[-1].arguments
    for argument in arguments:
        if argument.kind == "scalar" and not argument.constexpr and type(argument.value) is int:
            yield argument.name, _scalars(launches, argument.name)
    for argument in arguments:
        if argument.kind in ("tensor", "descriptor"):
            shapes = [next((_shape(a) for a in launch.arguments if a.name == argument.name), ()) for launch in launches]
            for axis in range(len(_shape(argument))):
                extents = tuple(shape[axis] if axis < len(shape) else None for shape in shapes)
                yield f"{argument.name}.shape[{axis}]", extents
            if len(argument.shape) > 1:
                yield f"{argument.name}.numel()", tuple(map(math.prod, shapes))
    for argument in arguments:
        if argument.constexpr and type(argument.value) is int:
            yield f'meta["{argument.name}"]', _scalars(launches, argument.name)


def _shape(argument: Argument) -> tuple[int, ...]:
    """The extents of a tensor, or of the tensor under a descriptor."""
    return argument.members[0].shape if argument.kind == "descriptor" else argument.shape


def _scalars(launches: Sequence[RecordedLaunch], name: str) -> tuple[int | None, ...]:
    values = (next((a.value for a in launch.arguments if a.name == name), None) for launch in launches)
    return tuple(value if type(value) is int else None for value in values)


def _combine_formulas(text: str, first: Formula, second: Formula, compute: Callable[[int, int], int | None]) -> Formula:
    pairs = zip(first[1], second[1], strict=True)
    return text, tuple(None if a is None or b is None else compute(a, b) for a, b in pairs)
