"""A candidate's program as the judge reads it: plain data of a process that is not trusted.

`encoded_program` writes it in the candidate's process, `program_of_json` reads it in the judge's. The reader trusts
nothing: each field has a type and a range, each reference a value that an earlier step made.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernellab.capture.tape import LAUNCH, Addresses, Ref, Tape, TapeDescriptor, members_of, refs_in
from kernellab.launch.arguments import TRITON_NAMES
from kernellab.source import Binding, jsonable
from kernellab.source.model import from_jsonable
from kernellab.source.validation import MalformedData, reading, require, require_binding

MOST_STEPS = 20_000
MOST_VALUES = 100_000
MOST_LINES = 10_000_000
MOST_CONSTANT_BYTES = 16 << 20
_MOST_DEPTH = 20
_OPTIONS = frozenset({"num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion", "launch_cooperative_grid"})
_DTYPES = (*TRITON_NAMES, "complex64", "complex128")
_TORCH_NAMES = {
    "dtype": _DTYPES,
    "layout": ("strided",),
    "memory_format": ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d"),
}


@dataclass(frozen=True, slots=True)
class TorchName:
    """A constant of torch among the arguments of a step: its kind (``dtype``, ``device``, ...) and its name."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class ProgramValue:
    """A tensor of the program: dtype, shape, strides and offset in elements, in a storage by number."""

    storage: int
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class LaunchVariant:
    """Grid, constexprs (as bindings of the kernel's closure) and options of a launch under one config."""

    grid: tuple[int, int, int]
    constants: tuple[tuple[str, Binding], ...]
    options: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class ProgramStep:
    """One operation: its name, arguments with `Ref` in place of tensors, and the values that it makes.

    A launch has the number of its ``kernel`` and a variant for each config that it may take, the recorded one first.
    ``line`` is that of the candidate's file that asked for the step.
    """

    operation: str
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()
    results: tuple[int, ...] = ()
    is_several: bool = False
    line: int | None = None
    kernel: int | None = None
    variants: tuple[LaunchVariant, ...] = ()


@dataclass(frozen=True, slots=True)
class CandidateProgram:
    """A program for one layout of the inputs.

    ``inputs`` pairs names and values; ``outputs`` are values in the order of what ``solve`` returned, or of the
    arguments that it fills, and ``output_names`` their names. ``constants`` are the bytes of tensors of the host,
    by value.
    """

    values: tuple[ProgramValue, ...]
    steps: tuple[ProgramStep, ...]
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[int, ...]
    constants: tuple[tuple[int, bytes], ...] = ()
    output_names: tuple[str, ...] = ()


def encoded_program(
    tape: Tape,
    inputs: Sequence[str],
    kernel_number: Callable[[Any], int],
    others: Mapping[int, Sequence[Mapping[str, Any]]],
) -> dict[str, Any]:
    """Return a recorded program as JSON; ``inputs`` are the names of its inputs.

    ``others`` has the variants of other configs, by the id of a launch's use.
    """
    steps = []
    for step in tape.steps:
        encoded: dict[str, Any] = {
            "operation": step.operation,
            "args": [_encode(value) for value in step.args],
            "kwargs": [[name, _encode(value)] for name, value in step.kwargs],
            "results": list(step.results),
            "several": step.several,
            "line": _line_of(step.place),
        }
        if step.use is not None:
            use = step.use
            own = encoded_variant(use.grid, use.constants, use.options)
            encoded |= {"kernel": kernel_number(use.closure), "variants": [own, *others.get(id(use), ())]}
        steps.append(encoded)
    return {
        "values": [
            [v.storage, v.layout.dtype, list(v.layout.shape), list(v.layout.stride), v.layout.offset]
            for v in tape.values
        ],
        "inputs": [[name, index] for name, index in zip(inputs, tape.inputs, strict=True)],
        "outputs": list(tape.outputs),
        "constants": [
            [index, _encoded_bytes(_without_addresses(tape, index, tensor))] for index, tensor in tape.constants
        ],
        "steps": steps,
    }


def encoded_variant(
    grid: Sequence[int], constants: Iterable[tuple[str, Binding]], options: Iterable[tuple[str, Any]]
) -> dict[str, Any]:
    """Return grid, constexprs and options of a launch as JSON."""
    return {
        "grid": list(grid),
        "constants": [[name, jsonable(binding)] for name, binding in constants],
        "options": [[name, value] for name, value in options],
    }


def _line_of(place: str) -> int | None:
    match = re.search(r", line (\d+)$", place)
    return int(match[1]) if match else None


def _encoded_bytes(tensor: Any) -> str:
    import torch

    flat = tensor.detach().contiguous().reshape(-1)
    return base64.b64encode(bytes(flat.view(torch.uint8).numpy()) if flat.numel() else b"").decode()


def _without_addresses(tape: Tape, index: int, tensor: Any) -> Any:
    """Return a constant with zeros in place of the addresses that launches take from it."""
    import torch

    tables = (
        part
        for step in tape.steps
        for part in members_of([value for _, value in step.kwargs])
        if isinstance(part, Addresses) and part.table is not None
    )
    own = tape.values[index].storage
    places = [
        tape.values[part.table.index].layout.offset + position
        for part in tables
        if part.table is not None and tape.values[part.table.index].storage == own
        for position, _, _ in part.entries
    ]
    words = tensor.detach().clone(memory_format=torch.contiguous_format)
    if places:
        words.view(-1)[places] = 0
    return words


def _encode(value: Any) -> Any:
    import torch

    match value:
        case Ref(index):
            return {"ref": index}
        case TapeDescriptor(Ref(index), shape, strides, block_shape, padding):
            return {"descriptor": [index, list(shape), list(strides), list(block_shape), str(padding)]}
        case Addresses(table, entries):
            known = None if table is None else table.index
            return {"addresses": [known, [[position, ref.index, offset] for position, ref, offset in entries]]}
        case torch.dtype() | torch.device() | torch.layout() | torch.memory_format():
            return {"torch": [type(value).__name__, str(value).removeprefix("torch.")]}
        case float():
            return {"float": value.hex()}
        case tuple():
            return {"tuple": [_encode(member) for member in value]}
        case list():
            return {"list": [_encode(member) for member in value]}
        case None | bool() | int() | str():
            return value
        case _:
            return {"unknown": f"{type(value).__module__}.{type(value).__qualname__}"}


def program_of_json(data: Any, kernels: int) -> CandidateProgram:
    """Return a program, checked; ``kernels`` is how many there are to launch.

    Raises:
        MalformedData: it is malformed.
    """
    with reading("the program"):
        _require_list(data["values"], "the values", MOST_VALUES)
        values = tuple(_value(value, f"value {index}") for index, value in enumerate(data["values"]))
        _require_list(data["steps"], "the steps", MOST_STEPS)
        inputs = tuple((_text(name, "an input's name"), _index(i, len(values))) for name, i in data["inputs"])
        constants = tuple((_index(i, len(values)), _bytes(text)) for i, text in data["constants"])
        if sum(len(content) for _, content in constants) > MOST_CONSTANT_BYTES:
            raise MalformedData("its constants take more than 16 MiB")
        known = {index for _, index in inputs} | {index for index, _ in constants}
        steps = []
        for number, step in enumerate(data["steps"]):
            read = _step(step, len(values), kernels, f"step {number}")
            for ref in refs_in([*read.args, *(value for _, value in read.kwargs)]):
                require(ref.index in known, f"an operand of step {number}", ref.index, "a value that was made before")
            known |= {index for index in read.results if index >= 0}
            steps.append(read)
        outputs = tuple(_index(index, len(values)) for index in data["outputs"])
        for index in outputs:
            require(index in known, "an output", index, "a value that the program makes or takes")
        for index, content in constants:
            own = values[index]
            expected = math.prod(own.shape) * itemsize_of(own.dtype)
            require(len(content) == expected, "the bytes of a constant", len(content), str(expected))
        _require_list(data["output_names"], "the names of outputs", len(outputs))
        output_names = tuple(_text(name, "an output's name") for name in data["output_names"])
        require(len(set(output_names)) == len(outputs), "the names of outputs", output_names, f"{len(outputs)} names")
        return CandidateProgram(values, tuple(steps), inputs, outputs, constants, output_names)


def itemsize_of(dtype: str) -> int:
    """Return the bytes of an element of a dtype by torch's name."""
    bits = re.search(r"\d+", dtype)
    return 1 if bits is None or dtype.startswith("float8") else int(bits[0]) // 8


def _value(data: Any, where: str) -> ProgramValue:
    storage, dtype, shape, stride, offset = data
    require(dtype in _DTYPES, f"the dtype of {where}", dtype, "a dtype of torch")
    extents = _numbers(shape, f"the shape of {where}")
    steps = _numbers(stride, f"the strides of {where}")
    require(len(extents) == len(steps) <= 16, f"the strides of {where}", stride, "one for each dimension")
    return ProgramValue(
        _number(storage, "a storage", MOST_VALUES), dtype, extents, steps, _number(offset, f"the offset of {where}")
    )


def _step(data: Any, values: int, kernels: int, where: str) -> ProgramStep:
    operation = _text(data["operation"], f"the operation of {where}")
    is_launch = operation == LAUNCH
    line = data["line"]
    require(line is None or (type(line) is int and 0 < line < MOST_LINES), f"the line of {where}", line, "a line")
    require(type(data["several"]) is bool, f"several of {where}", data["several"], "true or false")
    results = tuple(-1 if index == -1 else _index(index, values) for index in data["results"])
    variants: tuple[LaunchVariant, ...] = ()
    if is_launch:
        _require_list(data["variants"], f"the variants of {where}", 1_000)
        variants = tuple(_variant(variant, where) for variant in data["variants"])
        require(bool(variants), f"the variants of {where}", [], "at least one")
    return ProgramStep(
        operation=operation,
        args=tuple(_decode(value, values) for value in data["args"]),
        kwargs=tuple((_text(name, "a name"), _decode(value, values)) for name, value in data["kwargs"]),
        results=results,
        is_several=data["several"],
        line=line,
        kernel=_index(data["kernel"], kernels) if is_launch else None,
        variants=variants,
    )


def _variant(data: Any, where: str) -> LaunchVariant:
    grid = _numbers(data["grid"], f"the grid of {where}", 2**31)
    require(len(grid) == 3, f"the grid of {where}", data["grid"], "three extents")
    constants = []
    for name, binding in data["constants"]:
        read = from_jsonable(binding)
        require_binding(read, 1_000, f"{name} of {where}")
        constants.append((_text(name, "a constexpr's name"), read))
    options = []
    for name, value in data["options"]:
        require(name in _OPTIONS, f"an option of {where}", name, f"one of {', '.join(sorted(_OPTIONS))}")
        is_number = value is None or type(value) is bool or (type(value) is int and 0 <= value <= 1024)
        require(is_number, f"{name} of {where}", value, "a number")
        options.append((name, value))
    return LaunchVariant((grid[0], grid[1], grid[2]), tuple(constants), tuple(options))


def _decode(value: Any, values: int, depth: int = 0) -> Any:
    require(depth < _MOST_DEPTH, "an argument", "a nested list", f"at most {_MOST_DEPTH} levels")
    if value is None or type(value) in (bool, str):
        return value
    if type(value) is int:
        require(-(2**63) <= value < 2**64, "an integer", value, "64 bits")
        return value
    require(isinstance(value, dict) and len(value) == 1, "an argument", value, "a number, text or reference")
    ((kind, content),) = value.items()
    match kind:
        case "ref":
            return Ref(_index(content, values))
        case "float":
            return float.fromhex(content)
        case "tuple" | "list":
            _require_list(content, "an argument", MOST_VALUES)
            members = [_decode(member, values, depth + 1) for member in content]
            return members if kind == "list" else tuple(members)
        case "torch":
            return _torch_name(*content)
        case "descriptor":
            base, shape, strides, block_shape, padding = content
            require(padding in ("zero", "nan"), "a descriptor's padding", padding, "zero or nan")
            extents, steps, block = (_numbers(part, "a descriptor") for part in (shape, strides, block_shape))
            return TapeDescriptor(Ref(_index(base, values)), extents, steps, block, padding)
        case "addresses":
            table, entries = content
            return _addresses(table, entries, values)
        case "unknown":
            raise MalformedData(f"a step takes a {content}, which is not an argument of a program")
        case _:
            raise MalformedData(f"an argument is of the kind {kind!r}")


def _addresses(table: Any, entries: Any, values: int) -> Addresses:
    _require_list(entries, "the addresses of an argument", MOST_VALUES)
    known = None if table is None else Ref(_index(table, values))
    read = []
    for position, index, offset in entries:
        require(type(offset) is int and abs(offset) < 2**48, "an offset of an address", offset, "a number of bytes")
        read.append((_number(position, "the place of an address"), Ref(_index(index, values)), int(offset)))
    require(known is not None or len(read) == 1, "the addresses of a number", len(read), "one")
    return Addresses(known, tuple(read))


def _torch_name(kind: Any, name: Any) -> TorchName:
    if kind == "device":
        is_device = isinstance(name, str) and re.fullmatch(r"(cpu|cuda)(:\d+)?", name) is not None
        require(is_device, "a device", name, "cpu or cuda")
    else:
        require(name in _TORCH_NAMES.get(kind, ()), f"a {kind} of torch", name, "one that a judge knows")
    return TorchName(kind, name)


def _require_list(value: Any, where: str, most: int) -> None:
    require(isinstance(value, list), where, value, "a list")
    require(len(value) <= most, f"the number of {where}", len(value), f"at most {most:,}")


def _numbers(value: Any, where: str, most: int = 2**48) -> tuple[int, ...]:
    _require_list(value, where, 64)
    return tuple(_number(member, where, most) for member in value)


def _number(value: Any, where: str, most: int = 2**48) -> int:
    require(type(value) is int and 0 <= value < most, where, value, "a number that is not negative")
    return int(value)


def _index(value: Any, count: int) -> int:
    require(type(value) is int and 0 <= value < count, "a reference", value, f"0 to {count - 1}")
    return int(value)


def _text(value: Any, where: str) -> str:
    require(isinstance(value, str) and 0 < len(value) <= 200, where, value, "a short text")
    return str(value)


def _bytes(value: Any) -> bytes:
    require(isinstance(value, str), "a constant", value, "base64")
    return base64.b64decode(value, validate=True)
