"""Which controls a panel has: those that the user gives, or those that the kernel's own parameters suggest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kernellab.errors import UsageError
from kernellab.explore.ranges import Control, control_of, is_power_of_two, powers_around

GRID = ("grid_x", "grid_y", "grid_z")
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
_STARTS = {"num_warps": 4, "num_stages": 3, "num_ctas": 1}
_WARPS = (1, 2, 4, 8, 16)
_STAGES = (1, 2, 3, 4, 5)
_MOST_GRID = 65_535


@dataclass(frozen=True, slots=True)
class Subject:
    """What is known of a launch before any of it is chosen.

    ``given`` are the arguments and options of the call by name, ``parameters`` the kernel's in order, with those that
    are constexprs in ``constexprs`` and those that have a default in ``defaults``. ``configs`` are the values that each
    config of an autotuned kernel sets, ``grid`` the extents where no function gives them, ``numel`` the elements of the
    smallest tensor, and ``dtypes`` what stands for a ``tl.dtype``.
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


@dataclass(frozen=True, slots=True)
class Plan:
    """The controls of a panel, the arguments and options that stay, and remarks for the user."""

    controls: tuple[Control, ...]
    fixed: Mapping[str, Any]
    notes: tuple[str, ...] = ()


def planned(subject: Subject, ranges: Mapping[str, Any]) -> Plan:
    """Return the controls for what the user gives; without any, those that the kernel suggests.

    Raises:
        UsageError: a list or tuple is no range, or a name is none of the kernel, of its grid or of the options.
    """
    _require_known(subject, ranges)
    asked = [_asked(subject, name, given) for name, given in ranges.items()]
    controls = [control for control in asked if control is not None]
    single = {name: value for name, value in ranges.items() if name not in {control.name for control in controls}}
    if not controls:
        controls = list(_proposed(subject, {**subject.given, **single}))
    names = {control.name for control in controls}
    fixed = {name: value for name, value in {**subject.given, **single}.items() if name not in names}
    return Plan(tuple(controls), fixed, tuple(_notes(subject, controls)))


def _require_known(subject: Subject, ranges: Mapping[str, Any]) -> None:
    from kernellab._triton.specialize import option_names  # keeps this module light
    from kernellab.target import DEFAULT_TARGET, parse_target

    options = {*OPTIONS, *option_names(parse_target(DEFAULT_TARGET)), "waves_per_eu", "matrix_instr_nonkdim", "kpack"}
    for name in ranges:
        if name not in {*subject.parameters, *GRID, *options}:
            known = ", ".join([*subject.parameters, *OPTIONS[:2], *GRID])
            raise UsageError(f"{name} is neither a parameter of the kernel nor an option; expected one of {known}.")


def _asked(subject: Subject, name: str, given: Any) -> Control | None:
    control = control_of(name, given)
    if control is None or control.span is None:
        return control
    most = subject.numel  # more than there is memory for would be out of bounds from the start
    if name in GRID:
        most = None if subject.grid is None else subject.grid[GRID.index(name)]
    low, high = control.span
    return control if most is None else control_of(name, given, max(low, min(high, most)))


def _proposed(subject: Subject, known: Mapping[str, Any]) -> Iterable[Control]:
    by_config = _of_configs(subject)
    missing = [p for p in subject.parameters if _is_missing(subject, p, known) and p not in by_config]
    for name in subject.parameters:
        value = known.get(name, subject.defaults.get(name))
        if name in by_config:
            yield by_config[name]
        elif name in missing:
            start = 256 if len(missing) == 1 else 32  # tiles have two extents, and their product counts
            yield Control(name, powers_around(start), start)
        elif name in subject.constexprs:
            yield from _of_constexpr(subject, name, value)
    for name in ("num_warps", "num_stages"):
        if name in by_config:
            yield by_config[name]
        elif name == "num_warps" or subject.has_loop:
            stops = _WARPS if name == "num_warps" else _STAGES
            start = known.get(name) or _first_of(subject, name)
            yield Control(name, tuple(sorted({*stops, start})), start)
    yield from _of_grid(subject)


def _is_missing(subject: Subject, name: str, known: Mapping[str, Any]) -> bool:
    return name in subject.constexprs and name not in known and name not in subject.defaults


def _of_constexpr(subject: Subject, name: str, value: Any) -> Iterable[Control]:
    """Yield the control that the value of a constexpr suggests; a number that is no power of two suggests none."""
    if isinstance(value, bool):
        yield Control(name, (False, True), value)
    elif is_power_of_two(value) and value > 1:
        yield Control(name, powers_around(value), value)
    elif any(type(value) is type(dtype) for dtype in subject.dtypes):
        others = (dtype for dtype in subject.dtypes if dtype != value)
        yield Control(name, (value, *others), value)


def _of_configs(subject: Subject) -> dict[str, Control]:
    """Return a control for each parameter that the configs of an autotuner set to different values."""
    found = {}
    for name in dict.fromkeys(name for config in subject.configs for name in config):
        values = [config[name] for config in subject.configs if config.get(name) is not None]
        choices = (
            sorted(set(values)) if all(isinstance(value, int) for value in values) else list(dict.fromkeys(values))
        )
        if len(choices) == 1 and is_power_of_two(choices[0]) and choices[0] > 1 and name not in OPTIONS:
            choices = list(powers_around(choices[0]))
        if choices and (len(choices) > 1 or name not in OPTIONS):
            found[name] = Control(name, tuple(choices), values[0])
    return found


def _first_of(subject: Subject, name: str) -> int:
    values = [config[name] for config in subject.configs if config.get(name)]
    return values[0] if values else _STARTS[name]


def _of_grid(subject: Subject) -> Iterable[Control]:
    """Yield a control for each extent of a grid of plain numbers: with other blocks, other extents may be right."""
    for name, extent in zip(GRID, subject.grid or (), strict=False):
        if extent > 1:
            span = (1, min(8 * extent, _MOST_GRID))
            control = control_of(name, span, extent)
            if control is not None:
                yield control


def _notes(subject: Subject, controls: list[Control]) -> Iterable[str]:
    blocks = [control.name for control in controls if control.name in subject.constexprs]
    if subject.grid is not None and blocks and any(extent > 1 for extent in subject.grid):
        extents = " x ".join(str(extent) for extent in subject.grid if extent > 1)
        yield (
            f"The grid is {extents} whatever {blocks[0]} is; pass a function, such as lambda meta: "
            f'(triton.cdiv(n, meta["{blocks[0]}"]),), to let it follow.'
        )
