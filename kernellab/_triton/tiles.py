"""Register layouts of tiles, from Triton itself: the linear layouts of the types of a module, and of Gluon.

Gluon's builder returns a linear layout for every encoding with a Gluon class. For an impossible layout it aborts the
process (https://github.com/triton-lang/triton: assertions of `LinearLayoutConversions.cpp`). So it is called only for
types of modules that Triton has lowered itself, and for Gluon layouts after a check; never for memory layouts, for
which Triton 3.6 aborts.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

from triton._C.libtriton import ir

from kernellab.errors import UsageError, choice_message, value_text
from kernellab.ir.layouts import LaidOutValue, Layouts, RegisterLayout, Registers, layouts_of, type_of
from kernellab.workers.scratch import Scratch

try:
    from triton._C.libtriton import amd, gluon_ir, nvidia
except ImportError:  # a build without these backends, or before Gluon
    amd = gluon_ir = nvidia = None


@lru_cache(maxsize=16)
def layouts_in(kernel: str, target: str, ttgir: str) -> Layouts:
    """The values of a module that have a layout.

    Where Triton cannot read the module, which another version may have written, tiles in registers are unknown.
    """
    return layouts_of(kernel, target, ttgir, _registers(ttgir) if ttgir and gluon_ir is not None else {})


def gluon_tile(layout: Any, shape: Sequence[int], element: str = "f32") -> LaidOutValue:
    """A tile in a layout of Gluon, for display: `gluon_tile(gl.BlockedLayout(...), [64, 64])`.

    Raises:
        UsageError: it is not a layout of Gluon, is impossible for a tile of this shape, or cannot be drawn.
    """
    if gluon_ir is None or not hasattr(layout, "_to_ir"):
        raise UsageError(f"{value_text(layout)} is not a layout of Gluon; expected one such as gl.BlockedLayout(...).")
    context = _context()  # that the builder does not hold
    builder = gluon_ir.GluonOpBuilder(context)
    sizes = tuple(map(int, shape))
    _require_possible(layout, sizes)
    try:
        text, is_distributed = _mlir_type(builder, layout, sizes, element)
        registers = _registers_of(builder, layout, sizes) if is_distributed else None
    except RuntimeError as error:
        raise UsageError(f"{value_text(layout)} is not a layout: {str(error).strip()}") from error
    kind = type_of(text, {})
    if kind is None:
        raise UsageError(f"{value_text(layout)} is not a layout that can be drawn: it reads {text}.")
    return LaidOutValue("tile", type(layout).__name__, sizes, element, kind[3], None, "", registers=registers)


_ELEMENTS = {"f64": "double", "f32": "float", "f16": "half", "bf16": "bf16", "f8E4M3FN": "fp8e4nv", "f8E5M2": "fp8e5"}
_ELEMENTS |= {f"i{bits}": f"int{bits}" for bits in (1, 8, 16, 32, 64)}


def _mlir_type(builder: Any, layout: Any, shape: tuple[int, ...], element: str) -> tuple[str, bool]:
    """The MLIR type of a tile as text, and whether the tile lies in registers."""
    if element not in _ELEMENTS:
        raise UsageError(choice_message("element", element, tuple(_ELEMENTS)))
    bases = {base.__name__ for base in type(layout).__mro__}
    encoding, kind, sizes = layout._to_ir(builder), getattr(builder, f"get_{_ELEMENTS[element]}_ty")(), list(shape)
    if "DistributedLayout" in bases:
        return str(builder.get_distributed_ty(kind, sizes, encoding)), True
    make = builder.get_shared_mem_desc_ty if "SharedLayout" in bases else builder.get_tensor_mem_desc_ty
    return str(make(kind, sizes, encoding, sizes)), False


def _require_possible(layout: Any, shape: tuple[int, ...]) -> None:
    """Refuse layouts for which Triton would abort the process.

    Raises:
        UsageError: a side is not a power of two, axes are missing, or an instruction or a linear layout is impossible.
    """
    if any(size <= 0 or size & (size - 1) for size in shape):
        raise UsageError(f"A tile of shape {list(shape)} has no layout; expected powers of two.")
    try:
        rank = getattr(layout, "rank", len(shape))
    except ValueError as error:
        raise UsageError(f"{value_text(layout)} can be drawn once the compiler has chosen it, not before.") from error
    if rank != len(shape):
        raise UsageError(f"{value_text(layout)} is of {rank} axes; got a tile of shape {list(shape)}.")
    inner = layout
    while (parent := getattr(inner, "parent", None)) is not None:
        inner = parent
    instruction: Sequence[int] = getattr(inner, "instr_shape", ())
    if type(inner).__name__ == "NVMMADistributedLayout" and (len(instruction) < 2 or instruction[1] % 8):
        raise UsageError(
            f"{value_text(layout)}: no instruction has the shape {instruction}; expected columns by eight."
        )
    if hasattr(inner, "reg_bases"):
        _require_reaching(inner)


def _require_reaching(layout: Any) -> None:
    bits = [[0] * len(layout.shape)]
    bits += [basis for bases in (layout.reg_bases, layout.lane_bases, layout.warp_bases) for basis in bases]
    bits += list(layout.block_bases)
    reached = {(axis, size) for basis in bits for axis, size in enumerate(basis) if size}
    wanted = {(axis, 1 << bit) for axis, size in enumerate(layout.shape) for bit in range(size.bit_length() - 1)}
    if reached != wanted or any(sum(map(bool, basis)) > 1 for basis in bits):
        raise UsageError(
            f"{value_text(layout)} does not reach each element of its shape by bases that are powers of two."
        )


def _registers(ttgir: str) -> Registers:
    context = _context()
    with Scratch() as folder:
        path = folder / "module.ttgir"
        path.write_text(ttgir)
        try:
            module = ir.parse_mlir_module(str(path), context)
        except RuntimeError:
            return {}
    builder = gluon_ir.GluonOpBuilder(context)
    seen: set[str] = set()
    layouts: dict[tuple[str, tuple[int, ...]], RegisterLayout] = {}

    def visit(operation: Any) -> None:
        for value in map(operation.get_result, range(operation.get_num_results())):
            text = str(value.get_type())
            if text in seen or not text.startswith("tensor"):
                continue
            seen.add(text)
            kind = type_of(text, {})
            layout = None if kind is None else _registers_of_value(builder, value, kind[1])
            if kind is not None and layout is not None:
                layouts[str(kind[3]), kind[1]] = layout

    module.walk(visit)
    return layouts


@cache
def _keep_modules_until_exit() -> None:
    """Let Python clear Gluon's modules at exit.

    Triton holds their classes for ever, so nanobind would report everything reachable from them as leaked. A module
    that is still referenced at exit is cleared (https://docs.python.org/3/c-api/init.html#c.Py_FinalizeEx).
    """
    language = "triton.experimental.gluon.language"
    for name in ("_layouts", "amd._layouts", "nvidia.blackwell"):
        if (module := sys.modules.get(f"{language}.{name}")) is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(module))


def _context() -> Any:
    context = ir.context()
    ir.load_dialects(context)
    for backend in (amd, nvidia):
        backend.load_dialects(context)
    return context


def _registers_of_value(builder: Any, value: Any, shape: tuple[int, ...]) -> RegisterLayout | None:
    try:
        layout = builder.get_gluon_layout_from_tensor(value)
    except (ValueError, RuntimeError):  # Gluon has no class for it
        return None
    return _registers_of(builder, layout, shape)


def _registers_of(builder: Any, layout: Any, shape: Sequence[int]) -> RegisterLayout | None:
    """The linear layout of a Gluon layout; None where it spans several blocks."""
    linear = builder.to_linear_layout(layout._to_ir(builder), list(shape))
    _keep_modules_until_exit()
    if any(any(basis) for basis in linear.block_bases):
        return None
    bases = (linear.reg_bases, linear.lane_bases, linear.warp_bases)
    return RegisterLayout(tuple(shape), *(tuple(map(tuple, basis)) for basis in bases))
