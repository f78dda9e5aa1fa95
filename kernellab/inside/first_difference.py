"""The first line of two kernels whose values differ by more than their roundings.

Both run the same programs twice. First in float64, where kernels that compute the same sum in another order agree to
many digits: values that differ there are other values. If all agree, each runs in its own types, and its error is its
distance from float64: the first line with far more error than its partner loses the precision.

Where all that both store agrees, there is no difference, whatever their lines hold.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

from kernellab.checking.comparison import index_of, pair_texts
from kernellab.checking.tolerance import FLOAT32, unit_named
from kernellab.display import Drawable
from kernellab.errors import plural
from kernellab.inside.line_pairs import ValuePair, value_pairs
from kernellab.inside.values import Values
from kernellab.launch.recorded_values import Program, RecordedValue, ValueKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

Reason = Literal["value", "shape", "precision", "mask", "address", "operation", "missing"]
# Constants keep their types in float64 (a float32 factor is off by 6e-8), and exp multiplies what they are off by.
_EQUAL = 1e-5
_TIMES_THE_ERROR = 16.0
_NARROW = {"fp16": "float16", "bf16": "bfloat16", "fp8e4nv": "float8_e4m3fn", "fp8e5": "float8_e5m2"}
_ROUNDINGS_ALLOWED = 4.0
_ATOMIC = re.compile(r"\batomic_(\w+)\s*\(")


@dataclass(frozen=True)
class FirstDifference(Drawable):
    """The first pair of values that differ, or None in ``left`` and ``right`` where all that is stored agrees.

    ``names`` are the two sides, ``reason`` says what differs: a value, its shape or precision, a mask, an address, the
    operation of an atomic, or that only one side computes it. ``element`` is an index in the tile where they differ,
    ``numbers`` are both values there, and ``allowed`` is the difference that roundings explain. ``compared`` counts the
    compared values of ``programs``, which are some or all of those of ``grid``; ``failure`` says why a side stopped
    early, where it lacks the value or nothing differs. ``notes`` say what the sides ran on, if not on given arguments.
    """

    names: tuple[str, str]
    left: RecordedValue | None = None
    right: RecordedValue | None = None
    reason: Reason | None = None
    element: tuple[int, ...] = ()
    numbers: tuple[float, float] = (0.0, 0.0)
    allowed: float = 0.0
    texts: tuple[str, str] = ("", "")
    compared: int = 0
    programs: tuple[Program, ...] = ()
    failure: str = ""
    notes: tuple[str, ...] = ()
    grid: tuple[int, int, int] | None = None

    def __bool__(self) -> bool:
        return self.left is not None or self.right is not None

    def __repr__(self) -> str:
        return f"<{self.summary}>"

    @property
    def line(self) -> int | None:
        """The line that differs first, of the right side if it has one.

        Of a helper's parameter it is that of the call, unless the text of its definition differs, as by a default.
        """
        value = self.right or self.left
        if value is None:
            return None
        is_of_call = value.kind is ValueKind.PARAMETER and self.texts[0] == self.texts[1]
        return value.calls[-1] if is_of_call else value.line

    @property
    def covers_launch(self) -> bool:
        """Whether all programs of the launch were compared."""
        return self.grid is None or len(self.programs) == math.prod(self.grid)

    @property
    def coverage(self) -> str:
        """The number of compared programs: ``5 of 8 programs``."""
        if self.grid is None or self.covers_launch:
            return plural(len(self.programs), "program")
        return f"{len(self.programs):,} of {plural(math.prod(self.grid), 'program')}"

    @property
    def summary(self) -> str:
        """The difference in one sentence."""
        value = self.right or self.left
        if value is None:
            places = "" if self.covers_launch else f" in {self.coverage}"
            both = f"everything that {self.names[0]} and {self.names[1]} store{places} agrees"
            return f"No difference: {both}" + (f", up to where one stops: {self.failure}" if self.failure else "")
        name = value.name or value.argument or "a value"
        iteration = f", iteration {value.iteration[-1]}" if value.iteration else ""
        at = f", at {self.element}" if self.element else ""
        one, other = self.numbers
        match self.reason:
            case "missing":
                what = f"only {self.names[0] if self.right is None else self.names[1]} computes {name}"
                what += f"; the other stops: {self.failure}" if self.failure else ""
            case "shape" if self.left is not None:
                what = f"{name} has the shape {value.shape}, not {self.left.shape}"
            case "mask":
                what = f"the mask of {name} differs{at}"
            case "address":
                what = f"{name} is element {other:.0f} of {value.argument}, not {one:.0f}{at}"
            case "operation":
                what = f"another atomic reaches {name}: {self.texts[1]}"
            case "precision":
                what = f"{name} is off by {other:.3g} from float64, {self.names[0]} by {one:.3g}{at}"
            case _:
                texts = pair_texts(other, one)
                what = f"{name} is {texts[0]}, not {texts[1]}{at}; allowed {self.allowed:.2g}"
        return f"First difference in line {self.line}, program {value.program}{iteration}: {what}"


@dataclass(frozen=True, slots=True)
class _Difference:
    reason: Reason
    element: tuple[int, ...]
    numbers: tuple[float, float]
    allowed: float


def first_difference_of(names: tuple[str, str], record: Callable[[int, bool], Values]) -> FirstDifference:
    """Find the first difference of two recorded sides; ``record(side, is_wide)`` records one of them.

    Sides that agree in float64 are compared in their own types, too.
    """
    wide = record(0, True), record(1, True)
    pairs = value_pairs(*wide)
    if not stores_agree(*wide, _EQUAL):
        for pair in pairs:
            difference = _value_difference(pair) or _operation_difference(wide, pair)
            if difference is not None:
                return _result(names, wide, pair, difference, len(pairs))
    own = record(0, False), record(1, False)
    stores = [value for values in own for value in values.values if value.kind.is_store]
    tolerance = max((_rounding(value) for value in stores if value.data.dtype.kind == "f"), default=0)
    if not stores_agree(*own, _ROUNDINGS_ALLOWED * tolerance + 64 * FLOAT32):
        for pair, difference in _precision_differences(own, wide):
            return _result(names, own, pair, difference, len(pairs))
    return _no_difference(names, wide, len(pairs))


def difference_of_devices(name: str, gpu: Values, own: Values, wide: Values) -> FirstDifference:
    """Find the first value of a GPU that is farther from the CPU's than roundings explain.

    ``own`` and ``wide`` are the CPU's values in the types of the kernel and in float64. Integers, masks and addresses
    have to be equal.
    """
    errors = _errors(own, wide)
    functions = {(value.function, value.calls) for value in gpu.values}
    pairs = [_with_mask(pair) for pair in value_pairs(own, gpu) if not _is_left_out(pair.left, functions)]
    names = (f"{name} on the CPU", f"{name} on the GPU")
    for pair in pairs:
        left = pair.left
        allowed = 0.0
        if left is not None:
            allowed = _TIMES_THE_ERROR * (_largest(errors.get(id(left))) + _rounding(left) * _scale(left))
        difference = _value_difference(pair, allowed)
        if difference is not None:
            return _result(names, (own, gpu), pair, difference, len(pairs))
    return _no_difference(names, (own, gpu), len(pairs))


def _is_left_out(value: RecordedValue | None, functions: Collection[tuple[str, tuple[int, ...]]]) -> bool:
    """Whether a value is of a helper that a GPU records nothing of, such as one passed to ``tl.reduce``."""
    return value is not None and bool(value.calls) and (value.function, value.calls) not in functions


def _with_mask(pair: ValuePair) -> ValuePair:
    """A pair with the mask of the CPU on both sides, where the GPU records neither addresses nor mask of an access."""
    left, right = pair.left, pair.right
    if left is None or right is None or left.elements is None or right.elements is not None:
        return pair
    return ValuePair(left, replace(right, mask=left.mask))


def first_rounding_of(name: str, own: Values, wide: Values) -> FirstDifference:
    """Find the first line of a kernel that loses far more precision, against float64, than its operands had lost."""
    errors = _errors(own, wide)
    lost: list[float] = []
    pairs = list(_same_places(own.values, wide.values))
    names = (f"{name} in float64", name)
    for value, exact in pairs:
        error = errors.get(id(value))
        share = _largest(error) / (_scale(exact) or 1.0)
        before = max((lost[at] for at in value.reads if at < len(lost)), default=0.0)
        allowed = _TIMES_THE_ERROR * (before + _rounding(value))
        lost.append(share)
        if error is not None and share > allowed:
            element = _first(error)
            numbers = (float(exact.data[element]), float(value.data[element]))
            difference = _Difference("value", element, numbers, allowed * _scale(exact))
            return _result(names, (wide, own), ValuePair(exact, value), difference, len(pairs))
    return _no_difference(names, (wide, own), len(pairs))


def _no_difference(names: tuple[str, str], sides: tuple[Values, Values], compared: int) -> FirstDifference:
    left, right = sides
    failure = left.failure or right.failure or ""
    return FirstDifference(names, compared=compared, programs=left.programs, failure=failure, grid=left.grid)


def _largest(error: NDArray[Any] | None) -> float:
    """The largest of the errors of a tile, 0 if there is none."""
    return 0.0 if error is None or not error.size else float(error.max())


def _scale(value: RecordedValue) -> float:
    """The largest finite magnitude of a tile of floats, 0 if there is none."""
    return _largest_finite(value.data) if value.data.dtype.kind == "f" else 0.0


def _largest_finite(numbers: NDArray[Any], lanes: bool | NDArray[Any] = True) -> float:
    import numpy as np

    finite = np.abs(numbers[np.isfinite(numbers) & lanes])
    return float(finite.max()) if finite.size else 0.0


def stores_agree(left: Values, right: Values, tolerance: float) -> bool:
    """Whether both sides leave the same elements with the same values, within a share of the largest one."""
    one, other = (_stored_values(values) for values in (left, right))
    if one.keys() != other.keys():
        return False
    largest: dict[str | None, float] = {}
    for (argument, *_), number in one.items():
        if math.isfinite(number):
            largest[argument] = max(largest.get(argument, 0.0), abs(number))
    return all(_is_near(number, other[key], tolerance * largest.get(key[0], 0.0)) for key, number in one.items())


def _is_near(one: float, other: float, allowed: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other)) or abs(one - other) <= allowed


def _stored_values(values: Values) -> dict[tuple[str | None, int, str], float]:
    """The last value of each element that was stored, and of each atomic operation the sum of its operands."""
    import numpy as np

    stored: dict[tuple[str | None, int, str], float] = {}
    for value in values.values:
        if value.kind.is_store and value.elements is not None:
            lanes = _lanes(value)
            elements = np.broadcast_to(value.elements, lanes.shape)[lanes].tolist()
            operation = _operation(values, value)
            for element, number in zip(elements, value.data[lanes].tolist(), strict=True):
                key = (value.argument, element, operation)
                is_sum = value.kind is ValueKind.ATOMIC
                stored[key] = stored.get(key, 0.0) * is_sum + float(number)
    return stored


def _result(
    names: tuple[str, str], sides: tuple[Values, Values], pair: ValuePair, difference: _Difference, compared: int
) -> FirstDifference:
    texts = (
        "" if pair.left is None else sides[0].line_text(pair.left),
        "" if pair.right is None else sides[1].line_text(pair.right),
    )
    place = (difference.reason, difference.element, difference.numbers, difference.allowed)
    failure = sides[0].failure if pair.left is None else sides[1].failure if pair.right is None else None
    return FirstDifference(
        names, pair.left, pair.right, *place, texts, compared, sides[0].programs, failure or "", grid=sides[0].grid
    )


def _operation(values: Values, value: RecordedValue) -> str:
    """The atomic operation of a value, by the text of its line; "" of a store, or where the line has several."""
    names = set(_ATOMIC.findall(values.line_text(value))) if value.kind is ValueKind.ATOMIC else set()
    return names.pop() if len(names) == 1 else ""


def _operation_difference(sides: tuple[Values, Values], pair: ValuePair) -> _Difference | None:
    """How two atomics with equal operands differ: by their operations."""
    if pair.left is None or pair.right is None:
        return None
    one, other = _operation(sides[0], pair.left), _operation(sides[1], pair.right)
    return _Difference("operation", (), (0.0, 0.0), 0.0) if one and other and one != other else None


def _value_difference(pair: ValuePair, allowed: float | None = None) -> _Difference | None:
    """How two values differ: their lanes, their addresses, or their contents by more than ``allowed``.

    By default that is what float64 explains.
    """
    import numpy as np

    left, right = pair.left, pair.right
    if left is None or right is None:
        return _Difference("missing", (), (0.0, 0.0), 0.0)
    if left.data.shape != right.data.shape:
        return _Difference("shape", (), (0.0, 0.0), 0.0)
    lanes = _lanes(left)
    if not np.array_equal(lanes, _lanes(right)):
        return _Difference("mask", _first(lanes != _lanes(right)), (0.0, 0.0), 0.0)
    if left.elements is not None and right.elements is not None:
        elements = [np.broadcast_to(numbers, lanes.shape) for numbers in (left.elements, right.elements)]
        moved = (elements[0] != elements[1]) & lanes
        if moved.any() or left.argument != right.argument:
            element = _first(moved) if moved.any() else ()
            here, there = (float(numbers[element].flat[0]) for numbers in elements)
            return _Difference("address", element, (here, there), 0.0)
    if not left.kind.is_store:
        lanes = np.ones(lanes.shape, bool)  # what a load puts into masked lanes counts
    one, other = left.data.astype(np.float64), right.data.astype(np.float64)
    if left.data.dtype.kind != "f" and right.data.dtype.kind != "f":
        allowed = 0.0
    elif allowed is None:
        allowed = _EQUAL * _largest_finite(one, lanes)
    with np.errstate(invalid="ignore"):
        differs = ~((np.abs(one - other) <= allowed) | (one == other) | (np.isnan(one) & np.isnan(other))) & lanes
    if not differs.any():
        return None
    element = _first(differs)
    return _Difference("value", element, (float(one[element]), float(other[element])), allowed)


def _lanes(value: RecordedValue) -> NDArray[Any]:
    import numpy as np

    shape = value.data.shape
    return np.ones(shape, bool) if value.mask is None else np.broadcast_to(value.mask, shape)


def _first(lanes: NDArray[Any]) -> tuple[int, ...]:
    return index_of(int(lanes.argmax()), lanes.shape)


def _rounding(value: RecordedValue) -> float:
    return unit_named(_NARROW.get(value.dtype, "float32"))


def _precision_differences(
    own: tuple[Values, Values], wide: tuple[Values, Values]
) -> Iterator[tuple[ValuePair, _Difference]]:
    """The pairs with one value much farther from float64 than the other, in order."""
    import numpy as np

    errors = [_errors(*side) for side in zip(own, wide, strict=True)]
    for pair in value_pairs(*own):
        one, other = errors[0].get(id(pair.left)), errors[1].get(id(pair.right))
        if pair.left is None or one is None or other is None or one.shape != other.shape or not one.size:
            continue
        worst = np.maximum(one, other)
        best = min(float(one.max()), float(other.max()))
        allowed = _TIMES_THE_ERROR * best + 64 * FLOAT32 * _scale(pair.left)
        if float(worst.max()) > allowed:
            element = _first(worst)
            yield pair, _Difference("precision", element, (float(one[element]), float(other[element])), allowed)


def _errors(own: Values, wide: Values) -> dict[int, NDArray[Any]]:
    """The distance of each float value from its value in float64, by the identity of the value.

    Equal infinities and two NaNs have none; where one of the values alone is NaN, it is infinite.
    """
    import numpy as np

    errors: dict[int, NDArray[Any]] = {}
    for value, exact in _same_places(own.values, wide.values):
        if value.data.dtype.kind == "f" and value.data.shape == exact.data.shape:
            data = value.data.astype(np.float64)
            same = (data == exact.data) | (np.isnan(data) & np.isnan(exact.data)) | ~_lanes(value)
            with np.errstate(invalid="ignore"):
                errors[id(value)] = np.where(
                    same, 0.0, np.nan_to_num(np.abs(data - exact.data), nan=np.inf, posinf=np.inf)
                )
    return errors


def _same_places(
    own: Sequence[RecordedValue], wide: Sequence[RecordedValue]
) -> Iterator[tuple[RecordedValue, RecordedValue]]:
    """The values of two runs of one kernel, as long as both take the same way."""
    place = attrgetter("line", "name", "iteration", "kind")
    return takewhile(lambda pair: place(pair[0]) == place(pair[1]), zip(own, wide, strict=False))
