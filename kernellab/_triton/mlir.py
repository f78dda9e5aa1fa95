"""From Triton's live MLIR bindings, and the printed form beside them, to a `Graph`.

The walk over the bindings gives operations with operands, results, blocks and regions, identified by their
addresses; `kernellab._triton.printed` adds attributes, branch successors and locations. The two are matched in the
order of the print, and any disagreement is an error, never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from triton._C.libtriton import ir
from triton.compiler import make_backend

from kernellab._triton.assemble import RawBlock, RawModule, RawOperation, assemble
from kernellab._triton.printed import read_printed
from kernellab._triton.specialize import Specialization, gpu_target, source_of
from kernellab.errors import CompileError, UsageError
from kernellab.ir.graph import Graph
from kernellab.target import Target
from kernellab.workers.forks import Scratch

Parameters = Sequence[tuple[str, str]]


def graph_of_module(module: Any, context: Any, parameters: Parameters | None = None) -> Graph:
    """Return the graph of a live Triton module, raw or after the ttir stage.

    ``parameters`` are the name and type of every run-time parameter of the kernel, tuples flattened (see
    `flattened_parameters`). Without them, the names are taken from the module's own locations, where Triton writes
    the last variable that an argument was assigned to.
    ``context`` is the MLIR context that the module lives in; the caller keeps it alive.
    """
    return assemble(_walked(module), read_printed(str(module)), parameters)


def graph_of_file(path_or_text: str | Path, parameters: Parameters | None = None) -> Graph:
    """Return the graph of a stored ``.ttir`` file, or of its text.

    Raises:
        UsageError: there is no such file.
        CompileError: Triton cannot parse the module.
    """
    if isinstance(path_or_text, str) and "\n" in path_or_text:
        with Scratch() as folder:
            path = folder / "module.ttir"
            path.write_text(path_or_text)
            return graph_of_file(path, parameters)
    path = Path(path_or_text)
    if not path.is_file():
        raise UsageError(f"TTIR file {str(path)!r} does not exist; expected the path of a file or its text.")
    module, context = _parsed(path)
    return graph_of_module(module, context, parameters)


def flattened_parameters(signature: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return name and type of every run-time parameter of a signature, tuple members as ``name[i]``.

    ``signature`` maps each parameter to its type as Triton writes it: ``*fp32``, ``i32``, ``constexpr``, a tuple of
    types for a tuple, ``tensordesc<fp16[16, 32]>`` for a host descriptor. Constexpr ones are left out.
    """
    found: list[tuple[str, str]] = []

    def add(name: str, kind: Any) -> None:
        if isinstance(kind, tuple | list):
            for index, member in enumerate(kind):
                add(f"{name}[{index}]", member)
        elif kind != "constexpr":
            found.append((name, str(kind)))

    for name, kind in signature.items():
        add(name, kind)
    return tuple(found)


def load_context(backend: Any = None) -> Any:
    """Return a new MLIR context with Triton's dialects, and those of ``backend``, loaded."""
    context = ir.context()
    ir.load_dialects(context)
    if backend is not None:
        backend.load_dialects(context)
    return context


def raw_module(function: Any, special: Specialization, target: Target) -> tuple[Any, Any, Callable[[Any], Any]]:
    """Build the raw TTIR of a jit function: the module, its context, and the function that runs the ttir stage on it.

    No driver is asked, and errors of the compiler come through as Triton raises them.
    """
    device = gpu_target(target)
    backend = make_backend(device)
    options = backend.parse_options(dict(special.options))
    context = load_context(backend)
    source = source_of(function, special.signature, special.constants, special.attributes)
    codegen = backend.get_codegen_implementation(options)
    module = source.make_ir(device, options, codegen, backend.get_module_map(), context)

    def optimised(raw: Any) -> Any:
        stages: dict[str, Callable[[Any, dict[str, Any]], Any]] = {}
        backend.add_stages(stages, options, source.language)
        return stages["ttir"](raw, {})

    return module, context, optimised


def _parsed(path: Path) -> tuple[Any, Any]:
    context = load_context()
    try:
        module = ir.parse_mlir_module(str(path), context)
    except RuntimeError as error:
        raise CompileError(f"TTIR file {str(path)!r} cannot be parsed by this Triton.", detail=str(error)) from error
    module.context = context
    return module, context


@dataclass(slots=True)
class _Walk:
    """The callback of a module walk; it takes what it needs of each operation and keeps no binding object."""

    operations: list[RawOperation] = field(default_factory=list)
    blocks: dict[int, RawBlock] = field(default_factory=dict)
    types: dict[int, str] = field(default_factory=dict)

    def visit(self, operation: Any) -> None:
        name = operation.get_name()
        if name == "builtin.module":
            return
        block = operation.get_block()
        key = block.id()
        if key not in self.blocks:
            self.blocks[key] = self._block(block)
        self.blocks[key].operations.append(len(self.operations))
        regions = range(operation.get_num_regions())
        self.operations.append(
            RawOperation(
                name,
                tuple(operation.get_operand(i).id() for i in range(operation.get_num_operands())),
                tuple(self._value(operation.get_result(i)) for i in range(operation.get_num_results())),
                tuple(operation.get_region(i).id() for i in regions),
            )
        )

    def _value(self, value: Any) -> int:
        key: int = value.id()
        self.types[key] = str(value.get_type())
        return key

    def _block(self, block: Any) -> RawBlock:
        arguments = [block.get_argument(i) for i in range(block.get_num_arguments())]
        keys = tuple(self._value(argument) for argument in arguments)
        return RawBlock(block.get_parent().id(), keys, tuple(_location_text(each) for each in arguments), [])


def _walked(module: Any) -> RawModule:
    walk = _Walk()
    module.walk(walk.visit)
    return RawModule(walk.operations, list(walk.blocks.values()), walk.types)


def _location_text(value: Any) -> str:
    match = re.fullmatch(r"loc\((.*)\)", str(value.get_loc()))
    return match[1] if match else "unknown"
