"""The records of the store as JSON, and back; data from a file is checked, whoever wrote it."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Collection, Mapping
from types import NoneType
from typing import Any

from kernellab.source import (
    DTYPE_NAMES,
    INTEGER_OPTIONS,
    LAUNCH_FLAGS,
    Binding,
    Closure,
    MalformedData,
    Readers,
    formula_problem,
    from_jsonable,
    is_formula,
    is_name,
    is_plain,
    jsonable,
    parse_json,
    parse_python,
    reading,
    record_of_json,
    require,
    require_binding,
    require_closure,
    require_type,
)
from kernellab.store.columns import ROW_DETAILS, STATUSES
from kernellab.store.content import Argument, LaunchRow, Measurement, RecordedLaunch, Result, figures_of

# `torch.dtype`, but those of packed bits
TORCH_DTYPES = frozenset(
    {
        *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
        *("float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128"),
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2"),
        *("qint8", "qint32", "quint8", "quint4x2", "quint2x4"),
    }
)
_TAGGED: Readers = frozenset({(Any, from_jsonable), (tuple[Closure, Binding] | None, from_jsonable)})
"""Values that are tagged with their type: those of options and arguments, and the sources of arguments."""
_ARGUMENT_FIELDS_OUTSIDE_DIGEST = ("low", "high", "values")
LATEST = 9_000_000_000.0  # seconds since 1970: pandas counts nanoseconds in 64 bits
_RANK, _VALUES, _ELEMENTS = 64, 4_096, 2**62
_NOT_IN_CHECKS = frozenset(
    {
        *("__import__", "breakpoint", "compile", "delattr", "eval", "exec", "exit", "getattr", "globals", "help"),
        *("input", "locals", "open", "quit", "setattr", "vars"),
    }
)


def canonical_json(value: object) -> str:
    """Return canonical JSON."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


def launch_to_jsonable(launch: RecordedLaunch) -> dict[str, Any]:
    """Return a launch as JSON."""
    fields = {**_plain(launch), "arguments": [argument_to_jsonable(argument) for argument in launch.arguments]}
    late = {"by", *figures_of(launch)}  # entries of earlier releases have none of these
    defaults = {f.name: f.default for f in dataclasses.fields(launch) if f.name in late}
    return {name: value for name, value in fields.items() if name not in late or value != defaults[name]}


def launch_digest(launch: RecordedLaunch) -> str:
    """Return the digest that equal launches share, whatever their tensors held and their figures are."""

    def lasting(argument: dict[str, Any]) -> dict[str, Any]:
        kept = {name: value for name, value in argument.items() if name not in _ARGUMENT_FIELDS_OUTSIDE_DIGEST}
        return {**kept, "members": [lasting(member) for member in argument["members"]]}

    plain = {name: value for name, value in launch_to_jsonable(launch).items() if name not in figures_of(launch)}
    plain["arguments"] = [lasting(argument) for argument in plain["arguments"]]
    return hashlib.sha256(canonical_json(plain).encode()).hexdigest()


def result_to_jsonable(result: Result) -> dict[str, Any]:
    """Return the summary of a compiled kernel as JSON."""
    fields = _plain(result)
    if not result.through:
        del fields["through"]  # entries of earlier releases have none
    return fields


def _plain(record: RecordedLaunch | Result) -> dict[str, Any]:
    """Return a record by its field names; values of any plain type are tagged with it."""
    fields = {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}
    return {**fields, "options": {name: jsonable(value) for name, value in record.options.items()}}


def argument_to_jsonable(argument: Argument) -> dict[str, Any]:
    """Return the fields that differ from their defaults."""
    fields = {}
    for f in dataclasses.fields(argument):
        value = getattr(argument, f.name)
        if f.default is dataclasses.MISSING or value != f.default or type(value) is not type(f.default):
            fields[f.name] = value
    fields["members"] = [argument_to_jsonable(member) for member in argument.members]
    if argument.source is not None:
        fields["source"] = jsonable(argument.source)
    return {**fields, "value": jsonable(argument.value)}


def launch_from_jsonable(value: Mapping[str, Any], *, keeps_formulas: bool = True) -> RecordedLaunch:
    """Build a launch from JSON.

    Without ``keeps_formulas``, invalid grids and references are dropped: an earlier release wrote others.

    Raises:
        MalformedData: not a valid launch.
    """
    with reading("the launch"):
        launch = record_of_json(RecordedLaunch, value, _TAGGED)
        require_type(launch, RecordedLaunch, "the launch")
    _require_arguments(launch.arguments)
    for name, option in launch.options.items():
        is_option = name in INTEGER_OPTIONS and (option is None or type(option) is int)
        is_option |= name in LAUNCH_FLAGS and option is True
        require(is_option, f"the option {name!r}", option, f"a number for one of {', '.join(INTEGER_OPTIONS)}")
    require(launch.grid is None or min(launch.grid) >= 0, "the grid", launch.grid, "no negative extents")
    names = {argument.name for argument in launch.arguments}
    if not keeps_formulas:
        grid_text = launch.grid_text if is_formula(launch.grid_text, names) else ""
        check = launch.check if is_reference(launch.check, names) else ""
        return dataclasses.replace(launch, grid_text=grid_text, check=check)
    if launch.grid_text and (problem := formula_problem(launch.grid_text, names)):
        raise MalformedData(problem)
    expected = "an expression over the parameters of the kernel"
    require(not launch.check or is_reference(launch.check, names), "the reference", launch.check, expected)
    return launch


def launch_row_of(
    number: int, owner: int, text: str, seconds: float | None, count: int, created: float, last: float
) -> LaunchRow:
    """Return a launch of the history from its row.

    Raises:
        MalformedData: not in the expected form.
    """
    launch = launch_from_jsonable(parse_json(text), keeps_formulas=False)
    require_seconds(seconds, "seconds")
    require_count(count, "count")
    require_moment(created, "created")
    require_moment(last, "last")
    return LaunchRow(number, owner, launch, seconds, count, created, last)


def is_reference(text: str, names: Collection[str]) -> bool:
    """Whether a text is one expression over parameters, torch and harmless builtins, without private names."""
    try:
        body = parse_python(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    if len(body) != 1 or not isinstance(body[0], ast.Expr):
        return False
    nodes = list(ast.walk(body[0]))
    bound = {a.arg for node in nodes if isinstance(node, ast.Lambda) for a in node.args.args}
    known = {*names, *bound, "torch", "triton", "tl", "math", *(set(vars(builtins)) - _NOT_IN_CHECKS)}
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return used <= known and not any(name.startswith("_") for name in {*attributes, *(used - set(names))})


def result_from_jsonable(value: Mapping[str, Any]) -> Result:
    """Build the summary of a compiled kernel from JSON.

    Raises:
        MalformedData: not in the expected form.
    """
    with reading("the result"):
        options = {name: from_jsonable(option) for name, option in value["options"].items()}
        result = record_of_json(Result, {**value, "options": options}, frozenset())
        require_type(result, Result, "the result")
        return result


def measurement_of(key: Any, config: Any, device: Any, status: Any, time_ms: Any, details: Any) -> Measurement:
    """Return a measurement; ``config`` and ``details`` are objects, or the JSON of one.

    Raises:
        MalformedData: not in the expected form.
    """
    with reading("the measurement"):
        config, details = (parse_json(text) if isinstance(text, str) else text for text in (config, details))
        measurement = Measurement(key, config, device, status, time_ms, details)
        require_type(measurement, Measurement, "the measurement")
        require(measurement.status in STATUSES, "the status", measurement.status, f"one of {', '.join(STATUSES)}")
        require(time_ms is None or time_ms >= 0, "time_ms", time_ms, "no negative number")
        require_config(measurement.config)
        for name, value in measurement.details.items():
            require(len(name) <= 200 and name.isprintable(), "the name of a detail", name, "a short text")
            kinds = ROW_DETAILS.get(name, ()) if "standing" in measurement.details else ()
            require(not kinds or type(value) in kinds, name, value, f"one of {kinds}")
        return measurement


def require_config(values: Mapping[str, Any]) -> None:
    """Raise `MalformedData` for invalid values of a config."""
    require_type(values, dict[str, Any], "the config")
    for name, value in values.items():
        require(is_name(name), "a parameter of the config", name, "an identifier")
        fits = type(value) in _COUNT if name in INTEGER_OPTIONS else _is_stored(value)
        expected = "a number" if name in INTEGER_OPTIONS else "a value as configs keep it"
        require(fits, f"{name} of the config", value, expected)


def _is_stored(value: Any) -> bool:
    """Whether a value is plain, or the text and key of one without a form in JSON."""
    if isinstance(value, dict):
        return value.keys() == {"text", "key"} and all(type(member) is str for member in value.values())
    return all(map(_is_stored, value)) if isinstance(value, list) else True


_COUNT = (int, NoneType)


def require_moment(value: object, where: str) -> None:
    """Raise `MalformedData` unless a value is a time in seconds since 1970."""
    require_type(value, float, where)
    require(0 <= value <= LATEST, where, value, "seconds since 1970")  # type: ignore[operator]


def require_count(value: object, where: str) -> None:
    """Raise `MalformedData` unless a value is a count."""
    require_type(value, int, where)
    require(0 <= value < 2**53, where, value, "a count")  # type: ignore[operator]


def require_seconds(value: object, where: str) -> None:
    """Raise `MalformedData` unless a value is a duration or None."""
    require_type(value, float | None, where)
    require(value is None or value >= 0, where, value, "no negative number")  # type: ignore[operator]


def _require_arguments(arguments: tuple[Argument, ...]) -> None:
    earlier: dict[str, Argument] = {}
    for argument in arguments:
        require(is_name(argument.name), "the name of an argument", argument.name, "an identifier")
        require(argument.name not in earlier, "the name of an argument", argument.name, "names that differ")
        _require_argument(argument)
        if argument.alias:
            is_tensor = argument.kind == "tensor" and argument.alias in earlier
            require(
                is_tensor and earlier[argument.alias].kind == "tensor",
                f"the alias of {argument.name}",
                argument.alias,
                "an earlier tensor",
            )
        earlier[argument.name] = argument


def _require_argument(argument: Argument) -> None:
    name, value = argument.name, argument.value
    require(is_plain(value), f"the value of {name}", value, "a plain value")
    match argument.kind:
        case "tensor":
            _require_tensor(argument)
        case "scalar":
            pass
        case "value":
            shown = type(value) is str and argument.source is not None
            require(shown, f"the value of {name}", value, "its text, with its source")
        case "dtype":
            require(value in DTYPE_NAMES, f"the dtype of {name}", value, "a dtype of Triton")
        case "tuple":
            for index, member in enumerate(argument.members):
                require(member.name == f"{name}[{index}]", f"member {index} of {name}", member.name, "its place")
                _require_argument(member)
        case "descriptor":
            bases = [member for member in argument.members if member.kind == "tensor" and member.name == f"{name}.base"]
            require(len(bases) == len(argument.members) == 1, f"the base of {name}", argument.members, "one tensor")
            _require_tensor(bases[0])
            fits = len(argument.block) == len(bases[0].shape) and min(argument.block, default=1) > 0
            require(fits, f"the block of {name}", argument.block, "a positive extent per dimension")
            require(value is None or _is_layout(value), f"the layout of {name}", value, "a layout of Gluon, or none")
        case _:
            named = type(value) is str and re.fullmatch(r"[\w.<>\[\]]+", value) is not None
            require(named, f"the value of {name}", value, f"the name of a {argument.kind}")
    if argument.source is not None:
        closure, binding = argument.source
        require_closure(closure, f"the source of {name}", of_kernel=False)
        require_binding(binding, len(closure.functions), f"the source of {name}")


def _is_layout(value: Any) -> bool:
    """Whether a plain value is a Gluon layout: its class, and its fields by name."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) and name.isidentifier() for name in value):
        return False
    name = value.get("class")
    return isinstance(name, str) and name.isidentifier() and name.endswith("Layout")


def _require_tensor(argument: Argument) -> None:
    name, shape, stride = argument.name, argument.shape, argument.stride
    expected = f"one of {', '.join(sorted(TORCH_DTYPES))}"
    require(argument.dtype in TORCH_DTYPES, f"the dtype of {name}", argument.dtype, expected)
    require(len(shape) <= _RANK and min(shape, default=0) >= 0, f"the shape of {name}", shape, "extents")
    require(math.prod(shape) < _ELEMENTS, f"the shape of {name}", shape, "fewer elements")
    require(
        len(stride) == len(shape) and min(stride, default=0) >= 0, f"the stride of {name}", stride, "a step per axis"
    )
    require(
        len(argument.device) < 40 and argument.device.isprintable(), f"the device of {name}", argument.device, "a name"
    )
    low, high = argument.low, argument.high
    bounded = low is not None and high is not None and low <= high
    require(bounded or low is high is None, f"the bounds of {name}", (low, high), "two numbers in order, or none")
    if argument.values is not None:
        require(len(argument.values) <= _VALUES, f"the values of {name}", len(argument.values), f"at most {_VALUES}")
        fits = len(argument.values) == math.prod(shape)
        require(fits, f"the number of values of {name}", len(argument.values), f"{math.prod(shape)}, as in its shape")
