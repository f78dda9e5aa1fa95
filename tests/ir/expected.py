"""Kernels with the facts that their analysis must find: the vocabulary of the suite.

``@expect(reads="x", writes="y")`` above a ``@triton.jit`` function makes a `Case` of it. Facts are the exact answer
of the analysis. ``may`` lists those of them that the launch of the case does not show (a branch not taken, a loop
not entered); everything else must show when the case runs in the interpreter.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

from kernellab.ir.effects import REACHED

MODULES = (
    "kernels_access",
    "kernels_address",
    "kernels_atomics",
    "kernels_branches",
    "kernels_calls",
    "kernels_descriptors",
    "kernels_foreign",
    "kernels_launches",
    "kernels_loops",
    "kernels_regions",
    "kernels_unknown",
    "kernels_values",
)
LENGTH = 256
TRITON = tuple(int(part) for part in triton.__version__.split(".")[:2])

Fact = tuple[str, str]
"""What is done (``read``, ``write``, ``atomic``) and the argument it is done to."""


@dataclass(frozen=True, eq=False)
class Case:
    """A kernel, one launch of it, and its facts. ``unknown`` are the operations that the answer must name."""

    name: str
    kernel: Any
    facts: frozenset[Fact]
    may: frozenset[Fact]
    unknown: frozenset[str]
    overrides: Mapping[str, Any]
    options: Mapping[str, Any]
    grid: int
    interpreted: bool
    since: tuple[int, int]
    until: tuple[int, int]

    @property
    def supported(self) -> bool:
        return self.since <= TRITON <= self.until

    def arguments(self) -> dict[str, Any]:
        """Return fresh arguments for every run-time parameter, by name."""
        function = unwrapped(self.kernel)
        names = [each for each in function.arg_names if not _is_constexpr(function, each)]
        made = {name: self.overrides[name] if name in self.overrides else default_argument(name) for name in names}
        return {name: value() if callable(value) else value for name, value in made.items()}

    def constants(self) -> dict[str, Any]:
        """Return the constexprs that the launch passes."""
        function = unwrapped(self.kernel)
        return {name: value for name, value in self.overrides.items() if _is_constexpr(function, name)}


def _is_constexpr(function: Any, name: str) -> bool:
    annotation = function.fn.__annotations__.get(name, "")
    return "constexpr" in str(annotation)


def unwrapped(kernel: Any) -> Any:
    """Return the jit (or interpreted) function under autotuners and heuristics."""
    while hasattr(kernel, "fn") and hasattr(kernel.fn, "fn"):
        kernel = kernel.fn
    return kernel


def expect(
    reads: str = "",
    writes: str = "",
    atomics: str = "",
    *,
    may: str = "",
    unknown: str = "",
    args: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    grid: int = 1,
    interpreted: bool = True,
    since: tuple[int, int] = (3, 0),
    until: tuple[int, int] = (4, 0),
) -> Callable[[Any], Case]:
    """Return the decorator that states the facts of a kernel; names are separated by blanks.

    ``@table`` is memory whose address the argument ``table`` holds.
    """
    facts = {(kind, name) for kind, names in _kinds(reads, writes, atomics) for name in _names(names)}
    not_shown = {tuple(each.replace("@", REACHED).split(":", 1)) for each in may.split()}
    assert not_shown <= facts, f"may names {not_shown - facts}, which are no facts"

    def decorate(kernel: Any) -> Case:
        return Case(
            name=unwrapped(kernel).fn.__name__,
            kernel=kernel,
            facts=frozenset(facts),
            may=frozenset(not_shown),  # type: ignore[arg-type]
            unknown=frozenset(unknown.split()),
            overrides=args or {},
            options=options or {},
            grid=grid,
            interpreted=interpreted,
            since=since,
            until=until,
        )

    return decorate


def _names(text: str) -> list[str]:
    return [name.replace("@", REACHED) for name in text.split()]


def _kinds(reads: str, writes: str, atomics: str) -> Iterator[tuple[str, str]]:
    yield from (("read", reads), ("write", writes), ("atomic", atomics))


def default_argument(name: str) -> Any:
    """Return what a parameter of this name gets unless the case says otherwise."""
    if name in {"n", "k", "flag"}:
        return {"n": 13, "k": 3, "flag": 2}[name]
    if name.startswith("idx"):
        return torch.arange(LENGTH, dtype=torch.int32) % 16
    if name.startswith("long"):
        return torch.arange(LENGTH, dtype=torch.int64) % 16
    if name.startswith("half"):
        return torch.ones(LENGTH, dtype=torch.float16)
    if name.startswith("desc"):
        return TensorDescriptor(torch.ones(32, 16), [32, 16], [16, 1], [8, 16])
    if name.startswith("pair"):
        return (torch.ones(LENGTH), torch.ones(LENGTH))
    return torch.arange(LENGTH, dtype=torch.float32) % 16


def modules() -> list[ModuleType]:
    """Return the modules of the suite, imported."""
    return [importlib.import_module(f"tests.ir.{name}") for name in MODULES]


def all_cases() -> list[Case]:
    """Return every case that this Triton supports, in the order of the files."""
    found = [each for module in modules() for each in vars(module).values() if isinstance(each, Case)]
    names = [case.name for case in found]
    assert len(names) == len(set(names)), "two cases share a name"
    return [case for case in found if case.supported]


def spans(arguments: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Return first and last-plus-one byte address of every tensor among the arguments, tuples flattened."""
    found: dict[str, tuple[int, int]] = {}

    def add(name: str, value: Any) -> None:
        if isinstance(value, tuple | list):
            for index, member in enumerate(value):
                add(f"{name}[{index}]", member)
        elif isinstance(value, TensorDescriptor):
            add(name, value.base)
        elif isinstance(value, torch.Tensor):
            last = sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
            found[name] = (value.data_ptr(), value.data_ptr() + (last + 1) * value.element_size())

    for name, value in arguments.items():
        add(name, value)
    return found
