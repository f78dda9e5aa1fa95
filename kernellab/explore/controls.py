"""Which controls a panel has, and the values that each goes through: what the user gives, or the kernel suggests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from kernellab.errors import UsageError, value_message, value_text
from kernellab.source import INTEGER_OPTIONS

MOST_CHOICES = 1000
_EVERY_VALUE = 256  # a range with at most so many values has all of them on its slider
_STEPS_PER_OCTAVE = 4


@dataclass(frozen=True, slots=True)
class Control:
    """A parameter with the values that it can take, in the order of its slider.

    ``span`` are the bounds of a range of integers: any value between them can be set, also one that is not a stop of
    the slider.
    """

    name: str
    choices: tuple[Any, ...]
    start: Any
    span: tuple[int, int] | None = None

    @property
    def is_toggle(self) -> bool:
        """Whether it is a switch: its only values are False and True."""
        return len(self.choices) == 2 and all(isinstance(choice, bool) for choice in self.choices)

    @property
    def range_text(self) -> str:
        """Its values in words: ``64 to 4096``, ``False or True``."""
        labels = [label_of(choice) for choice in self.choices]
        is_ordered = all(map(_is_integer, self.choices)) and len(labels) > 2
        return f"{labels[0]} to {labels[-1]}" if is_ordered else " or ".join(labels)

    def can_take(self, value: Any) -> bool:
        """Whether it can be set to a value: one of its stops, or an integer of its range."""
        if _holds(self.choices, value):
            return True
        return self.span is not None and _is_integer(value) and self.span[0] <= value <= self.span[1]

    def with_choice(self, value: Any) -> Control:
        """Return the control with a value among its stops.

        Raises:
            UsageError: it cannot take that value.
        """
        if not self.can_take(value):
            expected = f"one of {', '.join(map(label_of, self.choices))}"
            if self.span is not None:
                expected = f"an integer from {self.span[0]} to {self.span[1]}"
            raise UsageError(f"{self.name} is {value_text(value)}; expected {expected}.")
        return self if _holds(self.choices, value) else replace(self, choices=tuple(sorted((*self.choices, value))))

    def starting_at(self, value: Any) -> Control:
        """Return the control with this start; unchanged where it cannot take the value."""
        return replace(self.with_choice(value), start=value) if self.can_take(value) else self


def control_of(name: str, given: Any) -> Control | None:
    """Return the control for what was given: a list of values, or a tuple (low, high); None for a single value.

    ``[64, ..., 4096]`` goes by factors of two, ``[1, 2, ..., 5]`` by the step that the leading values have.

    Raises:
        UsageError: the list is empty, or has no such step; the tuple is not a range of integers.
    """
    if isinstance(given, tuple) and len(given) == 2 and all(map(_is_integer, given)):
        low, high = given
        if low > high:
            raise UsageError(f"{name} is {value_text(given)}; expected (low, high) with low <= high.")
        return Control(name, stops_of_range(low, high), high, (low, high))
    if isinstance(given, list | range):
        if any(hasattr(choice, "data_ptr") for choice in given):
            raise UsageError(value_message(name, given, "a list of numbers, such as [64, ..., 4096], without tensors"))
        choices: tuple[Any, ...] = ()
        for value in expand(name, given):
            choices += () if _holds(choices, value) else (value,)
        return Control(name, choices, choices[0])
    return None


def expand(name: str, values: Sequence[Any]) -> list[Any]:
    """Return a list with its ``...`` filled in.

    Raises:
        UsageError: see `control_of`.
    """
    if not values:
        raise UsageError(f"{name} is an empty list; give at least one value.")
    if Ellipsis not in values:
        return list(values)
    place = list(values).index(Ellipsis)
    leading, last = list(values[:place]), list(values[place + 1 :])
    shown = f"[{', '.join('...' if value is Ellipsis else repr(value) for value in values)}]"
    if not leading or len(last) != 1 or not all(map(_is_integer, [*leading, *last])):
        raise UsageError(f"{name} is {shown}; expected integers around one ..., such as [64, ..., 4096].")
    step = _step(leading, last[0])
    if step is None:
        raise UsageError(f"{name} is {shown}; no factor of two and no step leads from {leading[-1]} to {last[0]}.")
    if len(step) > MOST_CHOICES:
        raise UsageError(
            f"{name} is {shown}, which are {len(step):,} values and more; a slider has {MOST_CHOICES} at most. "
            f"A range of integers is a tuple: ({leading[0]}, {last[0]})."
        )
    return [*leading[:-1], *step]


def stops_of_range(low: int, high: int) -> tuple[int, ...]:
    """Return the stops of a range: all its integers, or where these are many, some on a logarithmic scale."""
    if high - low < _EVERY_VALUE:
        return tuple(range(low, high + 1))
    if low < 0:
        count = _EVERY_VALUE - 1
        return tuple(sorted({low + round(i * (high - low) / count) for i in range(count + 1)}))
    powers = (round(2 ** (i / _STEPS_PER_OCTAVE)) for i in range(_STEPS_PER_OCTAVE * high.bit_length() + 1))
    return tuple(sorted({low, high, *(value for value in powers if low <= value <= high)}))


def powers_around(value: int) -> tuple[int, ...]:
    """Return the powers of two from an eighth of ``value`` to eight times it, at most 65,536."""
    low, high = max(1, value >> 3), max(value, min(value << 3, 1 << 16))
    return tuple(1 << i for i in range(low.bit_length() - 1, high.bit_length()))


def label_of(value: Any) -> str:
    """Return the label of a slider value: ``1,048,576``, ``fp16``, ``True``."""
    if _is_integer(value):
        return f"{value:,}" if abs(value) >= 100_000 else str(value)
    name = getattr(value, "name", None) or getattr(value, "__name__", None)
    return name if isinstance(name, str) else str(value)


def values_text(values: Mapping[str, Any]) -> str:
    """Return values in words: ``BLOCK=128, num_warps=4``."""
    return ", ".join(f"{name}={label_of(value)}" for name, value in values.items())


def is_power_of_two(value: object) -> bool:
    """Whether a value is a positive power of two, and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0 and value & (value - 1) == 0


def _step(leading: list[int], last: int) -> Sequence[int] | None:
    """Return the values from the last of the leading ones to the end; doubling where these double, else their step."""
    first = leading[-1]
    pairs = list(pairwise(leading))
    if all(b == 2 * a for a, b in pairs) and leading != [1, 2]:  # 1, 2, ... counts on, as everywhere
        powers = [first]
        while 0 < powers[-1] < last:
            powers.append(2 * powers[-1])
        if powers[-1] == last:
            return powers
    if len({b - a for a, b in pairs}) != 1:
        return None
    step = leading[-1] - leading[-2]
    reaches = step != 0 and (last - first) % step == 0 and (last - first) // step > 0
    return range(first, last + step, step) if reaches else None


def _holds(values: Iterable[Any], value: Any) -> bool:
    return any(type(member) is type(value) and member == value for member in values)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


GRID = ("grid_x", "grid_y", "grid_z")
_STARTS = {"num_warps": 4, "num_stages": 3, "num_ctas": 1}
_WARPS = (1, 2, 4, 8, 16)
_STAGES = (1, 2, 3, 4, 5)
_MOST_GRID = 65_535


@dataclass(frozen=True, slots=True)
class Subject:
    """A launch before any control is chosen.

    ``given`` are the arguments and options of the call by name, ``parameters`` the kernel's in order, with those that
    are constexprs in ``constexprs`` and those that have a default in ``defaults``. ``configs`` are the values that each
    config of an autotuned kernel sets, ``grid`` the extents where no function gives them, ``numel`` the elements of the
    smallest tensor, and ``dtypes`` what stands for a ``tl.dtype``. ``launched`` are the constexprs and options of the
    kernel's last launch. ``blocks`` has the block shape of each descriptor whose block no hook sets.
    """

    parameters: tuple[str, ...]
    constexprs: frozenset[str]
    defaults: Mapping[str, Any]
    given: Mapping[str, Any]
    configs: tuple[Mapping[str, Any], ...] = ()
    grid: tuple[int, ...] | None = None
    numel: int | None = None
    dtypes: tuple[Any, ...] = ()
    has_loop: bool = False
    launched: Mapping[str, Any] = field(default_factory=dict)
    blocks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ControlPlan:
    """The controls of a panel, the arguments and options that stay, and remarks for the user."""

    controls: tuple[Control, ...]
    fixed: Mapping[str, Any]
    notes: tuple[str, ...] = ()


def plan_controls(subject: Subject, ranges: Mapping[str, Any]) -> ControlPlan:
    """Return the controls for what the user gives; without any, those that the kernel suggests.

    A control starts at the value of the call, else of the last launch, where it has that value.

    Raises:
        UsageError: a list or tuple is not a range, or a name is none of the kernel, of its grid or of the options.
    """
    _require_known(subject, ranges)
    asked = [_control_for(subject, name, given) for name, given in ranges.items()]
    controls = [control for control in asked if control is not None]
    single = {name: value for name, value in ranges.items() if name not in {control.name for control in controls}}
    if not controls:
        controls = list(_suggested_controls(subject, {**subject.given, **single}))
    names = {control.name for control in controls}
    fixed = {name: value for name, value in {**subject.given, **single}.items() if name not in names}
    return ControlPlan(tuple(controls), fixed, tuple(_notes(subject, controls, fixed)))


def _require_known(subject: Subject, ranges: Mapping[str, Any]) -> None:
    from kernellab._triton.specialize import option_names  # keeps this module light
    from kernellab.target import DEFAULT_TARGET, parse_target

    options = {*option_names(parse_target(DEFAULT_TARGET)), "waves_per_eu", "matrix_instr_nonkdim", "kpack"}
    for name in ranges:
        if name not in {*subject.parameters, *GRID, *options}:
            known = ", ".join([*subject.parameters, *INTEGER_OPTIONS[:2], *GRID])
            raise UsageError(f"{name} is neither a parameter of the kernel nor an option; expected one of {known}.")


def _control_for(subject: Subject, name: str, given: Any) -> Control | None:
    control = control_of(name, given)
    if control is None:
        return None
    most = subject.numel  # more than there is memory for would be out of bounds from the start
    if name in GRID:
        most = None if subject.grid is None else subject.grid[GRID.index(name)]
    if control.span is not None and most is not None:
        control = control.starting_at(max(control.span[0], min(control.span[1], most)))
    start = subject.given.get(name, subject.launched.get(name, control.start))
    return control.starting_at(start)


def _suggested_controls(subject: Subject, known: Mapping[str, Any]) -> Iterable[Control]:
    by_config = _of_configs(subject)
    has_value = {*known, *subject.defaults, *by_config}
    missing = [name for name in subject.parameters if name in subject.constexprs and name not in has_value]
    for name in subject.parameters:
        launched = subject.launched.get(name)
        value = known.get(name, launched if name in subject.launched else subject.defaults.get(name))
        if name in by_config:
            yield by_config[name]
        elif name in missing:
            usual = 256 if len(missing) == 1 else 32  # tiles have two extents, and their product counts
            start = launched if isinstance(launched, int) and is_power_of_two(launched) else usual
            yield Control(name, powers_around(start), start)
        elif name in subject.constexprs:
            yield from _of_constexpr(subject, name, value)
    for name in ("num_warps", "num_stages"):
        if name in by_config:
            yield by_config[name]
        elif name == "num_warps" or subject.has_loop:
            stops = _WARPS if name == "num_warps" else _STAGES
            first = next((config[name] for config in subject.configs if config.get(name)), _STARTS[name])
            start = known.get(name) or subject.launched.get(name) or first
            yield Control(name, tuple(sorted({*stops, start})), start)
    for name, extent in zip(GRID, subject.grid or (), strict=False):  # with other blocks, other extents may be right
        if extent > 1:
            high = min(8 * extent, _MOST_GRID)
            yield Control(name, stops_of_range(1, high), extent, (1, high)).with_choice(extent)


def _of_constexpr(subject: Subject, name: str, value: Any) -> Iterable[Control]:
    """Yield the control that the value of a constexpr suggests; a number that is not a power of two suggests none."""
    if isinstance(value, bool):
        yield Control(name, (False, True), value)
    elif is_power_of_two(value) and value > 1:
        yield Control(name, powers_around(value), value)
    elif any(type(value) is type(dtype) for dtype in subject.dtypes):
        others = (dtype for dtype in subject.dtypes if dtype != value)
        yield Control(name, (value, *others), value)


def _of_configs(subject: Subject) -> dict[str, Control]:
    """Return a control for each parameter that the configs of an autotuner set to different values."""
    controls = {}
    for name in dict.fromkeys(name for config in subject.configs for name in config):
        values = [config[name] for config in subject.configs if config.get(name) is not None]
        are_integers = all(isinstance(value, int) for value in values)
        choices = sorted(set(values)) if are_integers else list(dict.fromkeys(values))
        if len(choices) == 1 and is_power_of_two(choices[0]) and choices[0] > 1 and name not in INTEGER_OPTIONS:
            choices = list(powers_around(choices[0]))
        if choices and (len(choices) > 1 or name not in INTEGER_OPTIONS):
            control = Control(name, tuple(choices), values[0])
            controls[name] = control.starting_at(subject.launched.get(name, values[0]))
    return controls


def _notes(subject: Subject, controls: list[Control], fixed: Mapping[str, Any]) -> Iterable[str]:
    blocks = [control for control in controls if control.name in subject.constexprs and _is_integer(control.start)]
    if subject.grid is not None and blocks and any(extent > 1 for extent in subject.grid):
        values = {**fixed, **{control.name: control.start for control in controls}}
        yield from _note_on_grid(subject, subject.grid, blocks, values)
    for argument, block in subject.blocks.items():
        names = [control.name for control in blocks if control.start in block]
        if names:
            shown = f"[{', '.join(map(str, block))}]"
            yield (
                f"The block of the descriptor {argument} is {shown} whatever {' and '.join(names)} "
                f"{'is' if len(names) == 1 else 'are'}; to let it follow, give all configs of @triton.autotune one "
                f"pre_hook that sets {argument}.block_shape."
            )


def _note_on_grid(
    subject: Subject, grid: tuple[int, ...], blocks: Sequence[Control], values: Mapping[str, Any]
) -> Iterable[str]:
    """Say that a grid of numbers does not follow the blocks; under one block, only of a grid that may depend on it.

    Programs of one row each have a grid that has to stay as it is. So under one block, the grid has to be ``cdiv`` of
    an argument by that block; as that may be by chance, the note has a condition.
    """
    extents = " x ".join(str(extent) for extent in grid if extent > 1)
    if len(blocks) > 1:
        those = " and ".join(control.name for control in blocks)
        function = "a function of those that it depends on"
        yield f"The grid is {extents} whatever {those} are; pass {function} to let it follow."
        return
    (block,) = blocks
    size = _split_size(subject, grid, block, values)
    if size is not None:
        yield (
            f"The grid is {extents} whatever {block.name} is; if its programs split {size} among them, pass lambda "
            f'meta: (triton.cdiv({size}, meta["{block.name}"]),) to let it follow.'
        )


def _split_size(subject: Subject, grid: tuple[int, ...], block: Control, values: Mapping[str, Any]) -> str | None:
    """Return the name of the integer argument with the grid as its ``cdiv`` by the block; None where there is none."""
    if block.start <= 0 or any(extent != 1 for extent in grid[1:]):
        return None
    sizes = (name for name in subject.parameters if name != block.name and _is_integer(values.get(name)))
    return next((name for name in sizes if -(-values[name] // block.start) == grid[0]), None)
