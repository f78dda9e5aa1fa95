"""Guessing the arguments of a kernel from its source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from typing import Any

import torch
import triton.language as tl
from triton.runtime import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

MEMORY_CALLS = re.compile(r"^(load|store|atomic_\w+|make_block_ptr|make_tensor_descriptor|_experimental_\w+)$")
NUMBER = re.compile(
    r"(?i)(stride|_size|^size|num|^n_|_n$|len$|length|offset$|^off|dim|eps|scale|alpha|beta|momentum|seed|total"
    r"|^[MNKTBHDVLCSGP]{1,2}\d?$|_per_|count$|width|height|padding|dilation|group|rank|delta|start|end$)"
)
REAL = re.compile(
    r"(?i)(eps|scale|alpha|beta|momentum|^p$|dropout|gamma|lambda|weight_decay|^lr$|threshold|softcap|temperature)"
)
INTEGERS = re.compile(
    r"(?i)(indices|index|idx|seqlens|offsets|lens|ids|target|table|label|positions|mapping|lut|count)"
)
SWITCH = re.compile(
    r"(?i)^(use|has|is|store|output|save|do|need|enable|causal|trans|reverse|return|with|apply|even|inplace|allow|keep|"
    r"accumulate|fuse|head_first|disable|same|bias|normalize|final|initial|skip|need)"
)
BLOCK = re.compile(r"(?i)(block|tile|^B[A-Z]$|^B[A-Z][A-Z]?$|chunk|_size$)")


def attempts(kernel: Any, function: JITFunction) -> Iterator[dict[str, Any]]:
    """Yield keyword arguments for a launch, likelier ones first."""
    pointers, descriptors = pointer_parameters(function), descriptor_parameters(function)
    for switch, dtype, block, number in product(
        (False, True), (torch.float32, torch.float16, torch.int64), (32, 64), (64, 16)
    ):
        given: dict[str, Any] = {}
        for parameter in function.params:
            if parameter.is_constexpr:
                default = parameter.default if parameter.has_default else None
                given[parameter.name] = guessed_constant(parameter.name, default, switch, block, number)
            else:
                given[parameter.name] = guessed_argument(parameter.name, parameter.name in pointers, dtype)
                if parameter.name in descriptors:
                    given[parameter.name] = TensorDescriptor(torch.empty(256, 256), [256] * 2, [256, 1], [block] * 2)
        yield from decorated(kernel, given)


def decorated(kernel: Any, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield ``given`` with what configs and heuristics say, if these can be asked."""
    known = dict(given)
    while not isinstance(kernel, JITFunction):
        configs = getattr(kernel, "configs", None)
        if configs:
            known.update(configs[0].kwargs)
        values = getattr(kernel, "values", None)
        for name, rule in values.items() if isinstance(values, Mapping) else ():
            try:
                known[name] = rule(known)
            except Exception:  # noqa: BLE001 - the guess stays
                continue
        kernel = kernel.fn
    yield known


def guessed_argument(name: str, is_pointer: bool, dtype: torch.dtype) -> Any:
    if is_pointer:
        return torch.empty(4096, dtype=torch.int32 if INTEGERS.search(name) else dtype)
    return 0.5 if REAL.search(name) else 48


def guessed_constant(name: str, default: Any, switch: bool, block: int, number: int) -> Any:
    if default is not None and not isinstance(default, bool):
        return default
    if re.search(r"(?i)dtype|type$", name):
        return tl.float32
    if SWITCH.search(name) or isinstance(default, bool):
        return switch
    return block if BLOCK.search(name) else number


@cache
def pointer_parameters(function: JITFunction) -> frozenset[str]:
    """Return the parameters that addresses are made of, in this function or in the helpers that it hands them to."""
    tree = ast.parse(function.src)
    parents: dict[str, set[str]] = {}
    roots: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                parents.setdefault(getattr(target, "id", ""), set()).update(likely(node.value))
        if isinstance(node, ast.Call):
            roots |= addresses(node, function)
    reached = set(roots)
    while more := {up for name in reached for up in parents.get(name, ())} - reached:
        reached |= more
    return frozenset(reached & set(function.arg_names))


def descriptor_parameters(function: JITFunction) -> frozenset[str]:
    """Return the parameters that have methods of a descriptor called."""
    calls = [node.func for node in ast.walk(ast.parse(function.src)) if isinstance(node, ast.Call)]
    methods = [
        each for each in calls if isinstance(each, ast.Attribute) and each.attr in {"load", "store", "atomic_add"}
    ]
    return frozenset(each.value.id for each in methods if isinstance(each.value, ast.Name)) & set(function.arg_names)


def likely(node: ast.AST) -> set[str]:
    """Return the names in a sum that may be its address: the first, and those not called like a number."""
    names = terms(node)
    return {*names[:1], *(name for name in names[1:] if not NUMBER.search(name))}


def addresses(call: ast.Call, function: JITFunction) -> set[str]:
    """Return the names that the address operand of a call is made of."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if MEMORY_CALLS.match(name) and (call.args or call.keywords):
        first = call.args[0] if call.args else call.keywords[0].value
        return likely(first)
    helper = function.fn.__globals__.get(name)
    if not isinstance(helper, JITFunction) or helper is function:
        return set()
    wanted = pointer_parameters(helper)
    handed = [*zip(helper.arg_names, call.args, strict=False), *((each.arg, each.value) for each in call.keywords)]
    return {
        term for parameter, value in handed if parameter in wanted for term in terms(value) if not NUMBER.search(term)
    }


def terms(node: ast.AST) -> list[str]:
    """Return the names that are added up in an expression, chosen between, or cast, from left to right."""
    parts: list[ast.AST] = []
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        parts = [node.left, node.right] if isinstance(node.op, ast.Add) else [node.left]
    elif isinstance(node, ast.IfExp):
        parts = [node.body, node.orelse]
    elif isinstance(node, ast.Tuple):
        parts = list(node.elts)
    elif isinstance(node, ast.Subscript):
        parts = [node.value]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        parts = [node.func.value] if node.func.attr in {"to", "cast"} else []
        parts += node.args[1:3] if node.func.attr == "where" else []
    return [name for part in parts for name in terms(part)]
