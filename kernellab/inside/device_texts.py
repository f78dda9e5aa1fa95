"""The texts of `device_functions` as functions of a closure, next to functions whose texts call them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kernellab._triton.specialize import gluon_barrier, gluon_flattens_inferred_layouts
from kernellab.inside import device_functions
from kernellab.source import Binding, Closure, Constant, Function, FunctionKind, FunctionRef, Import

DTYPES = (
    *("int1", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("fp8e4nv", "fp8e5", "fp8e4b15", "fp8e4b8", "fp8e5b16", "fp16", "bf16", "fp32", "fp64", "void"),
)
"""The types of elements that a log can hold, by number."""
POINTER = 64
ATOMICS = ("add", "and", "max", "min", "or", "xchg", "xor")
NO_ACCESS = 3
"""The part of an entry whose call turned out to be no access, such as ``gather`` of a tensor."""
INFERRED = () if gluon_flattens_inferred_layouts() else ("AutoLayout", "CoalescedLayout")
"""The layouts of Gluon whose tensors a log cannot hold."""
_CONSTANTS: dict[str, Binding] = {
    "KL_DTYPES": Constant(DTYPES),
    "KL_INFERRED": Constant(INFERRED),
    "KL_POINTER": Constant(POINTER),
}
_AT_COMPILE_TIME = frozenset({"kl_dtype_code", "kl_is_known", "kl_is_truth", "kl_stored_bytes"})
_CALL = re.compile(r"\b(kl_\w+)\(")


def with_device_functions(closure: Closure, texts: Mapping[int, str], twins: Sequence[Function] = ()) -> Closure:
    """A closure with other ``texts`` for some functions and with ``twins`` of some, which may call device functions.

    A twin is found by its name in all rewritten texts.
    """
    kind: FunctionKind = closure.functions[0].kind
    first = len(closure.functions)
    needed = _needed_functions([*texts.values(), *(twin.text for twin in twins)])
    places: dict[str, Binding] = {twin.name: FunctionRef(first + at) for at, twin in enumerate(twins)}
    places |= {name: FunctionRef(first + len(twins) + at) for at, name in enumerate(needed)}
    kept = [
        _with_text(function, texts[index], places) if index in texts else function
        for index, function in enumerate(closure.functions)
    ]
    rewritten = [_with_text(twin, twin.text, places) for twin in twins]
    return replace(closure, functions=(*kept, *rewritten, *(_device_function(name, kind, places) for name in needed)))


def _needed_functions(texts: Sequence[str]) -> list[str]:
    """The device functions that texts call, and those that these call."""
    needed: dict[str, None] = {}
    waiting = [name for text in texts for name in _CALL.findall(text)]
    while waiting:
        name = waiting.pop()
        if name in DEVICE_TEXTS and name not in needed:
            needed[name] = None
            waiting += _CALL.findall(DEVICE_TEXTS[name][0])
    return sorted(needed)


def _with_text(function: Function, text: str, places: Mapping[str, Binding]) -> Function:
    """A function with another text, in a file of its own: the user's file keeps its lines in tracebacks."""
    own = {name: places[name] for name in _CALL.findall(text) if name in places}
    bindings = tuple(sorted({**dict(function.bindings), **own}.items()))
    return replace(function, text=text, file=f"{function.file} (rewritten)", bindings=bindings)


def _device_function(name: str, kind: FunctionKind, places: Mapping[str, Binding]) -> Function:
    own = name.replace("kl_", "kl_gluon_", 1)
    text, line = DEVICE_TEXTS[own if kind == "gluon" and own in DEVICE_TEXTS else name]
    text = text.replace(f"def {own}(", f"def {name}(", 1)
    if name in _AT_COMPILE_TIME:
        bindings = tuple((constant, value) for constant, value in _CONSTANTS.items() if constant in text)
        return Function(name, "constexpr_function", text, _file_of(name), line, False, bindings)
    language = Import("triton.experimental.gluon.language" if kind == "gluon" else "triton.language")
    if kind == "gluon":
        text = text.replace("tl.debug_barrier()", f"tl.{gluon_barrier()}()")
    called = {other: places[other] for other in _CALL.findall(text.partition("\n")[2]) if other in places}
    names = tuple(sorted({**called, "tl": language}.items()))
    return Function(name, kind, text, _file_of(name, kind), line, False, names)


def _file_of(name: str, kind: FunctionKind = "jit") -> str:
    """The file of a device function; one with a text made from another has none on disk."""
    is_on_disk = hasattr(device_functions, name) and kind != "gluon"
    return device_functions.__file__ + ("" if is_on_disk else f" ({name})")


def _text_of(function: Callable[..., Any]) -> tuple[str, int]:
    lines, line = inspect.getsourcelines(function)
    return "".join(lines), line


def _device_texts() -> dict[str, tuple[str, int]]:
    texts = {name: _text_of(value) for name, value in vars(device_functions).items() if inspect.isfunction(value)}
    for prefix in ("kl_atomic", "kl_descriptor_atomic"):
        addition, line = texts[f"{prefix}_add"]
        texts |= {f"{prefix}_{name}": (addition.replace("atomic_add", f"atomic_{name}"), line) for name in ATOMICS}
    return texts


DEVICE_TEXTS = _device_texts()
"""The text and first line of each device function, by name."""
