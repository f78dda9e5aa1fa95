"""Text of the functions that launch a kernel from its binaries.

Its text is copied into exported binaries, before `kernellab.export.binary_loader`. A kernel has one launch function,
which finds the packing function of a call under a key: device, dtypes, alignments, classes of integers, constants and
options. A packing function belongs to a specialization on a device. It writes parameters, grid and stream into a buffer
by one ``pack_into`` and calls the driver. Buffers come from a list of free ones, so that threads share none.
"""

from __future__ import annotations

import ctypes
import dataclasses
import struct
from collections.abc import Callable, Sequence
from typing import Any

from kernellab.export.binary_driver import MAP_BYTES, LaunchConfig, cdiv, launch_attributes

_FLOATS, _INTEGERS, _UNSIGNED = {4: "f", 8: "d"}, {"i32": "i", "i64": "q", "u64": "Q"}, {1: "B", 2: "H", 4: "I", 8: "Q"}

LAUNCH_FORMAT = "7I4xQ"  # LaunchConfig up to its stream
MOST_KEPT = 4096  # calls, or tensor maps, before all are forgotten


def argument_form(parameter: dict[str, Any], keys: Sequence[tuple[Any, ...]]) -> str:
    """The way to read a parameter in a launch function, by its keys in all binaries; ``other`` is the slowest."""
    if parameter["is_constexpr"]:
        return "constant"
    kinds = set(map(_kind, keys))
    pointers = {kind for kind in kinds if kind.startswith("*")}
    if pointers:
        return "tensor" if pointers == kinds else "optional" if kinds - pointers == {"None"} else "other"
    if all(kind.startswith("tensordesc") for kind in kinds):
        return "descriptor"
    annotation = parameter["type"]
    if annotation:
        is_integer = annotation[:1] in "iu" and annotation != "u1"
        return "other" if kinds != {annotation} else "typed" if is_integer else "annotated"
    forms = {"integer": {"i32", "i64", "u64", "1"}, "plain": {"fp32", "u1", "None"}}
    return next((form for form, known in forms.items() if kinds <= known), "other")


def _kind(key: tuple[Any, ...]) -> str:
    if not key or isinstance(key[0], tuple):
        return "tuple"
    return str(key[1] if key[0] == "constexpr" else key[0])


def launch_source(parameters: Sequence[dict[str, Any]], forms: Sequence[str], heuristics: Sequence[str]) -> str:
    """Return the source of ``launch``: it takes the grid, arguments by position or name, then options by name."""
    names = [parameter["name"] for parameter in parameters]
    pointers = [(n, form) for n, form in zip(names, forms, strict=True) if form in ("tensor", "optional")]
    listed = ", ".join(f"{name!r}: {name}" for name in names)
    lines = [
        *_heuristic_lines(listed, heuristics),
        *(f"if {n} is _kl_missing: {n} = _kl_default_{n}" for n in names if "default" in parameters[names.index(n)]),
        "_kl_key = _kl_run = None",
        "try:",
        "    _kl_device = _kl_current_device()",
        *(f"    {line}" for line in _key_lines(parameters, forms)),
        "    _kl_run = _kl_runs[_kl_key]",
        *(f"    if {_is_on_host(n, form)}: _kl_at_{n} = _kl_address({n})" for n, form in pointers),
        "except (AttributeError, KeyError, TypeError): _kl_run = None",
        "if _kl_run is None:",
        f"    _kl_run = _kl_prepare(_kl_grid, _kl_key, {{{listed}}}, _kl_options)",
        "    if _kl_run is None: return",
        *(f"    _kl_at_{name} = _kl_address({name})" for name, _ in pointers),
        f"if _kl_callable(_kl_grid): _kl_grid = _kl_grid({{{listed}, **_kl_options}})",
        "if _kl_isinstance(_kl_grid, _kl_int): _kl_grid = (_kl_grid,)",
        "_kl_x, _kl_y, _kl_z = (*_kl_grid, 1, 1)[:3]",
        f"if _kl_x and _kl_y and _kl_z: _kl_run({', '.join(packed_names(names, forms))})",
    ]
    head = "".join(f"{name}=_kl_missing, " for name in names)
    return "\n".join([f"def launch(_kl_grid, /, {head}*_kl_rest, **_kl_options):", *(f"    {line}" for line in lines)])


def _is_on_host(name: str, form: str) -> str:
    return f"not {name}.is_cuda" if form == "tensor" else f"{name} is not None and not {name}.is_cuda"


def packed_names(names: Sequence[str], forms: Sequence[str]) -> list[str]:
    """The names of the values that a launch function passes to a packing function: grid, device, arguments."""
    passed = {"tensor": "_kl_at_{}", "optional": "_kl_at_{}"}
    values = [passed.get(form, "{}").format(n) for n, form in zip(names, forms, strict=True) if form != "constant"]
    return ["_kl_x", "_kl_y", "_kl_z", "_kl_device", *values]


def _heuristic_lines(listed: str, heuristics: Sequence[str]) -> list[str]:
    if not heuristics:
        return []
    given = f"{{name: value for name, value in {{{listed}}}.items() if value is not _kl_missing}}"
    values = [f"{name} = _kl_named[{name!r}] = _kl_heuristics[{name!r}](_kl_named)" for name in heuristics]
    return [f"_kl_named = {{**{given}, **_kl_options}}", *values]


def _key_lines(parameters: Sequence[dict[str, Any]], forms: Sequence[str]) -> list[str]:
    """Statements that compute the key of a call, or leave it None where the type of a number is unusual."""
    lines, parts, doubts, integers = [], ["_kl_device"], list[str](), list[str]()
    for parameter, form in zip(parameters, forms, strict=True):
        name = parameter["name"]
        parts += _key_parts(parameter, form)
        if form == "tensor":
            lines.append(f"_kl_at_{name} = {name}.data_ptr()")
        elif form == "optional":
            lines.append(f"_kl_at_{name} = None if {name} is None else {name}.data_ptr()")
        elif form in ("integer", "typed"):
            doubts.append(f"_kl_type({name}) is _kl_int")
            integers += [name] * (form == "integer")
        elif form in ("plain", "annotated"):
            doubts.append(f"_kl_type({name}) in _kl_{form}")
    if integers:
        widths = "".join(f"_kl_width({name}), " for name in integers)
        parts.append(f"({' | '.join(integers)}) >> 31 and ({widths})")
    parts.append("_kl_tuple(_kl_options.items()) if _kl_options else None")
    test = f"if {' and '.join(doubts)}: " if doubts else ""
    return [*lines, f"{test}_kl_key = ({', '.join(parts)})"]


def _key_parts(parameter: dict[str, Any], form: str) -> list[str]:
    """Return expressions that decide the key of an argument, as `argument_key` does."""
    name, specializes = parameter["name"], parameter["specialize"]
    aligns = specializes and parameter["align"]
    alignment = [f"_kl_at_{name} & 15 == 0"] * aligns
    if form == "integer":
        return [f"{name} & 15 and ({name} == 1 or 2)" if aligns else f"{name} == 1"] if specializes else []
    return {
        "constant": [f"{name} if _kl_type({name}) in _kl_constants else _kl_text({name})", f"_kl_type({name})"],
        "tensor": [f"{name}.dtype", *alignment],
        "optional": [f"{name} is None or ({', '.join((f'{name}.dtype', *alignment))},)"],
        "descriptor": [f"{name}.base.dtype", f"_kl_tuple({name}.block_shape)"],
        "typed": [f"{name} & 15 == 0"] * aligns,
        "plain": [f"_kl_type({name})"],
        "annotated": [f"_kl_type({name})"],
        "other": [f"_kl_argument_key({name}, _kl_parameter_{name})"],
    }[form]


def integer_width(value: int) -> str:
    """Return the type that Triton gives an integer without an annotation."""
    return "i32" if -(2**31) <= value < 2**31 else "i64" if value < 2**63 else "u64"


def _single(value: float) -> float:
    """Return the nearest float of 32 bits, which may be infinite."""
    return ctypes.c_float(value).value


def _bf16_bits(value: float) -> int:
    return int.from_bytes(bytes(ctypes.c_float(value))[2:], "little")


@dataclasses.dataclass
class Packing:
    """The parameters of a binary, one after the other: formats of `struct`, offsets in bytes, and their expressions."""

    sizes: list[int]
    format: str = "<"
    end: int = 0
    offsets: list[int] = dataclasses.field(default_factory=list)
    expressions: list[str] = dataclasses.field(default_factory=list)
    maps: int = 0

    @property
    def next_size(self) -> int:
        """The size of the parameter that comes next, in bytes."""
        return self.sizes[len(self.offsets)]

    def add(self, format: str, expression: str) -> None:
        """Add a parameter, at a multiple of its size; tensor maps at one of 64."""
        size = struct.calcsize(f"<{format}")
        start = cdiv(self.end, min(size, 64)) * min(size, 64)
        self.format += f"{start - self.end}x{format}"
        self.offsets.append(start)
        self.expressions.append(expression)
        self.end = start + size

    def add_argument(self, expression: str, key: tuple[Any, ...], is_address: bool = False) -> None:
        """Add the run-time parts of an argument; ``expression`` is its value, or the address of its memory."""
        if not key or isinstance(key[0], tuple):
            for index, member in enumerate(key):
                self.add_argument(f"{expression}[{index}]", member)
        elif key[0].startswith("*"):
            self.add("Q", expression if is_address else f"_kl_address({expression})")
        elif key[0].startswith("tensordesc"):
            self._add_descriptor(expression, key[0].count(",") + 1)
        elif key[0] != "constexpr":
            self._add_number(expression, key[0])

    def _add_number(self, value: str, kind: str) -> None:
        size = self.next_size
        if kind == "fp16":
            self.add("e", value)
        elif kind == "bf16":
            self.add("H", f"_kl_bf16({value})")
        elif kind in ("fp32", "fp64"):
            single = f"{value} if -3.4e38 < {value} < 3.4e38 else _kl_single({value})"
            self.add(_FLOATS[size], single if size == 4 else value)
        else:
            self.add(_UNSIGNED[size], f"_kl_int({value}) & {(1 << 8 * size) - 1}")

    def _add_descriptor(self, value: str, rank: int) -> None:
        layout = [f"{value}.{extents}[{axis}]" for extents in ("shape", "strides") for axis in range(rank)]
        if self.next_size == MAP_BYTES:
            self.add(f"{MAP_BYTES}s", f"_kl_map{self.maps}({value})")
            self.maps += 1
        else:
            self.add("Q", f"_kl_address({value}.base)")
            for number in layout:
                self.add("q", f"_kl_int({number})")
            self.add("?", f"{value}.padding == 'nan'")
            if self.next_size == 1:
                self.add("?", f"_kl_getattr({value}, 'round_f32_to_tf32', False)")
        for number in layout:
            self._add_number(number, "")


def packing_of(
    binary: dict[str, Any], keys: Sequence[tuple[Any, ...]], names: Sequence[str], forms: Sequence[str]
) -> Packing:
    """Return the parameters of a binary: its arguments, then scratch memory."""
    packing = Packing(binary["parameter_bytes"])
    for name, form, key in zip(names, forms, keys, strict=True):
        if form in ("tensor", "optional"):
            packing.add_argument(f"_kl_at_{name}", key, is_address=True)
        elif form == "integer" and key[0] != "constexpr":
            packing.add(_INTEGERS[key[0]], name)
        else:
            packing.add_argument(name, key)
    for index, size in enumerate(binary["scratch_bytes"]):
        packing.add("Q", f"_kl_scratch{index}.data_ptr()" if size else "0")
    return packing


def packing_source(packing: Packing, binary: dict[str, Any], names: Sequence[str], forms: Sequence[str]) -> str:
    """Return the source of ``run``: it takes the grid, the device, and the run-time arguments."""
    ctas = binary["num_ctas"]
    memory = [
        f"_kl_scratch{index} = _kl_allocate(_kl_x * _kl_y * _kl_z * {size * ctas}, _kl_device)"
        for index, size in enumerate(binary["scratch_bytes"])
        if size
    ]
    config = [f"_kl_x * {ctas}", "_kl_y", "_kl_z", f"{32 * binary['num_warps']}", "1", "1", f"{binary['shared_bytes']}"]
    values = ", ".join([*packing.expressions, *config, "_kl_stream(_kl_device)"])
    lines = [
        *memory,
        "try: _kl_buffer = _kl_free.pop()",
        "except IndexError: _kl_buffer = _kl_new_buffer()",
        "_kl_storage, _kl_start, _kl_config, _kl_parameters = _kl_buffer",
        f"_kl_pack(_kl_storage, _kl_start, {values})",
        "_kl_code = _kl_call(_kl_config, _kl_function, _kl_parameters, None)",
        "if _kl_code: _kl_repeat(_kl_code, _kl_device, _kl_config, _kl_function, _kl_parameters, None)",
        "_kl_free.append(_kl_buffer)",
    ]
    return "\n".join([f"def run({', '.join(packed_names(names, forms))}):", *(f"    {line}" for line in lines)])


def packing_function(
    driver: Any,
    binary: dict[str, Any],
    function: Any,
    keys: Sequence[tuple[Any, ...]],
    names: Sequence[str],
    forms: Sequence[str],
) -> Callable[..., None]:
    """Return the function that launches a loaded binary for arguments of these keys."""
    packing = packing_of(binary, keys, names, forms)
    config_start = cdiv(packing.end, 8) * 8
    layout = struct.Struct(f"{packing.format}{config_start - packing.end}x{LAUNCH_FORMAT}")
    attributes = launch_attributes(binary)

    def new_buffer() -> tuple[Any, ...]:
        storage = ctypes.create_string_buffer(config_start + ctypes.sizeof(LaunchConfig) + 64)
        start = -ctypes.addressof(storage) % 64  # where tensor maps may lie
        config = LaunchConfig.from_buffer(storage, start + config_start)
        config.attributes, config.count = attributes, len(attributes)
        address = ctypes.addressof(storage) + start
        pointers = (ctypes.c_void_p * len(packing.offsets))(*(address + offset for offset in packing.offsets))
        return storage, start, ctypes.byref(config), pointers

    maps = {f"map{index}": MapCache(driver, fields) for index, fields in enumerate(binary["tensor_maps"])}
    run: Callable[..., None] = defined_function(
        "run",
        packing_source(packing, binary, names, forms),
        free=[],
        new_buffer=new_buffer,
        pack=layout.pack_into,
        call=driver.library.cuLaunchKernelEx,
        repeat=driver.repeat_launch,
        function=function,
        stream=driver.current_stream,
        allocate=driver.allocate,
        address=driver.address,
        single=_single,
        bf16=_bf16_bits,
        **maps,
    )
    return run


class MapCache:
    """The tensor maps of a parameter, by address, shape, strides and padding of the descriptor."""

    def __init__(self, driver: Any, fields: dict[str, Any]) -> None:
        self.driver, self.fields = driver, fields
        self.maps: dict[tuple[Any, ...], bytes] = {}

    def __call__(self, descriptor: Any) -> bytes:
        """Return the tensor map of a descriptor, encoded at its first launch."""
        is_tf32 = getattr(descriptor, "round_f32_to_tf32", False)
        place = self.driver.address(descriptor.base)
        key = (place, *descriptor.shape, *descriptor.strides, descriptor.padding, is_tf32)
        words = self.maps.get(key)
        if words is None:
            if len(self.maps) >= MOST_KEPT:
                self.maps.clear()
            words = self.maps[key] = self.driver.tensor_map(descriptor, self.fields)
        return words


def defined_function(name: str, source: str, **values: Any) -> Any:
    """Return a function of generated source; it finds values, and builtins, under names with ``_kl_`` in front."""
    builtins = (callable, getattr, int, isinstance, tuple, type)
    named = {f"_kl_{builtin.__name__}": builtin for builtin in builtins}
    named.update((f"_kl_{key}", value) for key, value in values.items())
    exec(compile(source, f"<{name} of a binary>", "exec"), named)
    return named[name]
