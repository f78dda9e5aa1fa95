"""Kernels compiled with Triton's floating-point sanitizer, evaluated in numpy without a GPU.

The sanitizer replaces float operations of TTGIR by integer operations, between the operations ``embed`` and
``unembed``, which `benchmarks.fpsan_embedding` runs. `evaluate` runs the TTGIR of one program.

Integers are int64 arrays in the signed range of their type, ``i1`` are booleans, floats are uint64 arrays of their bit
patterns, and pointers are addresses in one array of bytes.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import triton
from triton.compiler import ASTSource, make_backend

from benchmarks.fpsan_embedding import COMPARISONS, TARGET, Array, NotEvaluated, bits_of_type, embedding, unsigned, wrap
from kernellab._triton.mlir import graph_of_module
from kernellab.ir.graph import Block, Graph, Operation

OPTIONS = {
    "instrumentation_mode": "fpsan",
    "fpsan_homomorphic_casts": True,
    "num_warps": 1,
    "enable_fp_fusion": True,
}
NUMPY_FLOATS: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
    "f8E5M2": ml_dtypes.float8_e5m2,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
}


def has_fpsan() -> bool:
    """Whether the installed Triton has the sanitizer with the operations that `evaluate` reads."""
    return hasattr(triton.knobs.compilation, "fpsan_homomorphic_casts")


def sanitized_graph(kernel: Any, signature: Mapping[str, str], constexprs: Mapping[str, Any]) -> Graph:
    """The TTGIR of a kernel after the sanitizer's pass, for cuda:90 and one warp."""
    from triton._C.libtriton import ir

    backend, source = make_backend(TARGET), ASTSource(kernel, dict(signature), dict(constexprs))
    options = backend.parse_options(OPTIONS)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    generation = backend.get_codegen_implementation(options), backend.get_module_map()
    module = source.make_ir(TARGET, options, *generation, context)
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, source.language)
    metadata: dict[str, Any] = {}
    for stage in ("ttir", "ttgir"):
        module = stages[stage](module, metadata)
    return graph_of_module(module, context)


def evaluate(graph: Graph, arguments: Sequence[Array | int]) -> None:
    """Run one program of a kernel; arrays are the memory behind pointers, and change in place.

    Raises:
        NotEvaluated: the kernel has an operation that the evaluator does not have.
    """
    program = _Program(graph)
    places = [program.place(value) if isinstance(value, np.ndarray) else value for value in arguments]
    (entry,) = graph.regions[graph.kernel.region].blocks
    with np.errstate(all="ignore"):
        program.run(graph.blocks[entry], [np.asarray(place, np.int64) for place in places])
    for value, place in zip(arguments, places, strict=True):
        if isinstance(value, np.ndarray):
            value[...] = program.memory[place : place + value.nbytes].view(value.dtype).reshape(value.shape)


def _floats(patterns: Array, element: str) -> Array:
    """The numbers of bit patterns, as float64."""
    bits = bits_of_type(element)
    numbers: Array = patterns.astype(f"u{bits // 8}").view(NUMPY_FLOATS[element]).astype(np.float64)
    return numbers


def _patterns(numbers: Array, element: str) -> Array:
    """The bit patterns of numbers that are rounded to a type."""
    rounded = np.asarray(numbers).astype(NUMPY_FLOATS[element])
    return rounded.view(f"u{bits_of_type(element) // 8}").astype(np.uint64)


_SIGNED: dict[str, Callable[..., Any]] = {
    "addi": operator.add,
    "subi": operator.sub,
    "muli": operator.mul,
    "andi": operator.and_,
    "ori": operator.or_,
    "xori": operator.xor,
    "maxsi": np.maximum,
    "minsi": np.minimum,
    "shli": operator.lshift,
    "shrsi": operator.rshift,
    "remsi": lambda x, y: np.fmod(x, np.where(y == -1, 1, y)),
}
_UNSIGNED: dict[str, Callable[..., Any]] = {
    "divui": operator.floordiv,
    "remui": operator.mod,
    "shrui": operator.rshift,
    "maxui": np.maximum,
    "minui": np.minimum,
}
_ATOMICS: dict[str, Callable[..., Any]] = {
    "max": np.maximum,
    "umax": np.maximum,
    "min": np.minimum,
    "umin": np.minimum,
}
_SAME = ("ttg.convert_layout", "ttg.local_load", "ttg.local_alloc")
_EFFECTS = ("ttg.barrier", "ttg.local_dealloc", "tt.return", "gpu.barrier")


@dataclass
class _Program:
    """The values of one program, and its memory."""

    graph: Graph
    memory: Array = field(default_factory=lambda: np.zeros(16, np.uint8))
    values: dict[int, Array] = field(default_factory=dict)

    def place(self, array: Array) -> int:
        """Copy an array to memory; returns its address."""
        address = self.allocate(array.nbytes)
        self.memory[address : address + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return address

    def allocate(self, size_bytes: int) -> int:
        address = len(self.memory)
        self.memory = np.concatenate([self.memory, np.zeros(-(-size_bytes // 16) * 16, np.uint8)])
        return address

    def run(self, block: Block, arguments: Sequence[Array]) -> list[Array]:
        """Run a block; returns the operands of its last operation."""
        self.values.update(zip(block.arguments, arguments, strict=True))
        for index in block.operations:
            operation = self.graph.operations[index]
            operands = [self.values[operand] for operand in operation.operands]
            results = self.results(operation, operands)
            self.values.update(zip(operation.results, results, strict=True))
        return operands

    def results(self, operation: Operation, operands: list[Array]) -> list[Array]:
        dialect, _, name = operation.name.partition(".")
        special = getattr(self, f"_{dialect}_{name}", None)
        if special is not None:
            values = special(operation, *operands)
            return values if isinstance(values, list) else [values]
        if operation.name in _EFFECTS or name.endswith(("yield", "return")):
            return []
        if operation.name in _SAME:
            return operands
        if dialect == "arith" and name in _SIGNED:
            return [wrap(_SIGNED[name](*operands), self.bits(operation.results[0]))]
        if dialect == "arith" and name in _UNSIGNED:
            bits = self.bits(operation.results[0])
            operands = [unsigned(operand, bits) for operand in operands]
            return [wrap(_UNSIGNED[name](*operands).view(np.int64), bits)]
        raise NotEvaluated(operation.name)

    def element(self, value: int) -> str:
        return self.graph.values[value].element

    def shape(self, value: int) -> tuple[int, ...]:
        return self.graph.values[value].shape

    def bits(self, value: int) -> int:
        return bits_of_type(self.element(value))

    def _arith_constant(self, operation: Operation) -> Array:
        text, result = operation.attribute("value").split(" : ")[0], operation.results[0]
        text = text.removeprefix("dense<").removesuffix(">")
        element = self.element(result)
        if text in ("true", "false"):
            value: Array = np.asarray(text == "true")
        elif element in NUMPY_FLOATS:
            pattern = int(text, 16) if text.startswith("0x") else None
            value = _patterns(np.float64(text), element) if pattern is None else np.asarray(pattern, np.uint64)
        else:
            value = np.asarray(int(text), np.int64)
        return np.broadcast_to(value, self.shape(result))

    def _arith_cmpi(self, operation: Operation, x: Array, y: Array) -> Array:
        predicate = operation.attribute("predicate")
        if predicate.startswith("u"):
            x, y = (unsigned(value, self.bits(operation.operands[0])) for value in (x, y))
        return np.asarray(COMPARISONS[predicate.lstrip("us") if len(predicate) > 2 else predicate](x, y))

    def _arith_cmpf(self, operation: Operation, x: Array, y: Array) -> Array:
        predicate, element = operation.attribute("predicate"), self.element(operation.operands[0])
        numbers = _floats(x, element), _floats(y, element)
        unordered = np.isnan(numbers[0]) | np.isnan(numbers[1])
        holds = COMPARISONS[predicate[1:]](*numbers)
        return np.asarray(holds & ~unordered if predicate[0] == "o" else holds | unordered)

    def _arith_select(self, operation: Operation, condition: Array, x: Array, y: Array) -> Array:
        return np.where(condition, x, y)

    def _arith_extsi(self, operation: Operation, x: Array) -> Array:
        return -x.astype(np.int64) if x.dtype == bool else x

    def _arith_extui(self, operation: Operation, x: Array) -> Array:
        return unsigned(x, self.bits(operation.operands[0])).view(np.int64)

    def _arith_trunci(self, operation: Operation, x: Array) -> Array:
        return wrap(x, self.bits(operation.results[0]))

    def _arith_sitofp(self, operation: Operation, x: Array) -> Array:
        return _patterns(x, self.element(operation.results[0]))

    def _arith_uitofp(self, operation: Operation, x: Array) -> Array:
        return _patterns(unsigned(x, self.bits(operation.operands[0])), self.element(operation.results[0]))

    def _arith_fptosi(self, operation: Operation, x: Array) -> Array:
        numbers = np.trunc(_floats(x, self.element(operation.operands[0])))
        return wrap(numbers.astype(np.int64), self.bits(operation.results[0]))

    def _math_absf(self, operation: Operation, x: Array) -> Array:
        return x & np.uint64((1 << (self.bits(operation.operands[0]) - 1)) - 1)

    def _tti_experimental_fpsan_embed(self, operation: Operation, x: Array) -> Array:
        element = self.element(operation.operands[0])
        return wrap(embedding(element)(x.view(np.int64)), bits_of_type(element))

    def _tti_experimental_fpsan_unembed(self, operation: Operation, x: Array) -> Array:
        element = self.element(operation.results[0])
        return unsigned(embedding(element, is_inverse=True)(x), bits_of_type(element))

    def _tti_dot_i8(self, operation: Operation, a: Array, b: Array, accumulator: Array) -> Array:
        """A product of blocks of bytes; each operand is signed or unsigned."""
        sides = zip((a, b), ("aSigned", "bSigned"), strict=True)
        left, right = (one if operation.attribute(name) == "true" else one & 255 for one, name in sides)
        return wrap(left @ right + accumulator, self.bits(operation.results[0]))

    def _tt_get_program_id(self, operation: Operation) -> Array:
        return np.asarray(0, np.int64)

    def _tt_make_range(self, operation: Operation) -> Array:
        start, end = (int(operation.attribute(name).split()[0]) for name in ("start", "end"))
        return np.arange(start, end, dtype=np.int64)

    def _tt_splat(self, operation: Operation, x: Array) -> Array:
        return np.broadcast_to(x, self.shape(operation.results[0]))

    def _tt_broadcast(self, operation: Operation, x: Array) -> Array:
        return np.broadcast_to(x, self.shape(operation.results[0]))

    def _tt_reshape(self, operation: Operation, x: Array) -> Array:
        return x.reshape(self.shape(operation.results[0]))

    def _tt_expand_dims(self, operation: Operation, x: Array) -> Array:
        return x.reshape(self.shape(operation.results[0]))

    def _tt_trans(self, operation: Operation, x: Array) -> Array:
        order = re.findall(r"\d+", operation.attribute("order").partition(":")[2] or operation.attribute("order"))
        return x.transpose([int(axis) for axis in order])

    def _tt_split(self, operation: Operation, x: Array) -> list[Array]:
        return [x[..., 0], x[..., 1]]

    def _tt_join(self, operation: Operation, x: Array, y: Array) -> Array:
        return np.stack([x, y], -1)

    def _tt_bitcast(self, operation: Operation, x: Array) -> Array:
        source, target = self.element(operation.operands[0]), self.element(operation.results[0])
        if source.startswith("!tt.ptr") or (source in NUMPY_FLOATS) == (target in NUMPY_FLOATS):
            return x
        bits = bits_of_type(target)
        return wrap(x.view(np.int64), bits) if source in NUMPY_FLOATS else unsigned(x, bits)

    def _tt_addptr(self, operation: Operation, pointer: Array, offset: Array) -> Array:
        return pointer + offset * self._pointee_bytes(operation.results[0])

    def _pointee_bytes(self, value: int) -> int:
        size = self.graph.values[value].pointee_bytes
        if size is None:
            raise NotEvaluated(f"a pointer of type {self.element(value)}")
        return size

    def _tt_load(self, operation: Operation, pointer: Array, *rest: Array) -> Array:
        mask = rest[0] if rest else np.ones(pointer.shape, bool)
        element = self.element(operation.results[0])
        size = bits_of_type(element) // 8
        places = np.where(mask, pointer, 0)[..., None] + np.arange(size)
        raw = self.memory[places].view(f"u{size}")[..., 0].astype(np.uint64)
        loaded = raw if element in NUMPY_FLOATS else wrap(raw.view(np.int64), 8 * size)
        return np.where(mask, loaded, rest[1]) if len(rest) > 1 else loaded

    def _tt_store(self, operation: Operation, pointer: Array, value: Array, *rest: Array) -> list[Array]:
        size = self._pointee_bytes(operation.operands[0])
        mask = rest[0] if rest else np.ones(pointer.shape, bool)
        stored = np.asarray(value).astype(np.int64).view(np.uint64).astype(f"u{size}")
        raw = np.ascontiguousarray(np.broadcast_to(stored, pointer.shape)[..., None]).view(np.uint8)
        self.memory[(pointer[..., None] + np.arange(size))[mask]] = raw[mask]
        return []

    def _tt_atomic_rmw(self, operation: Operation, pointer: Array, value: Array, mask: Array) -> Array:
        """An atomic operation of lanes that have an address each."""
        old, element = self._tt_load(operation, pointer), self.element(operation.results[0])
        kind = operation.attribute("atomic_rmw_op")
        if kind == "fadd":
            new = _patterns(_floats(old, element) + _floats(value, element), element)
        elif kind == "exch":
            new = value
        elif kind in _ATOMICS:
            bits = self.bits(operation.results[0])
            operands = (unsigned(one, bits) if kind.startswith("u") else one for one in (old, value))
            new = wrap(_ATOMICS[kind](*operands).view(np.int64), bits)
        else:
            raise NotEvaluated(f"an atomic {kind}")
        self._tt_store(operation, pointer, new, mask)
        return old

    def _tt_atomic_cas(self, operation: Operation, pointer: Array, expected: Array, value: Array) -> Array:
        old = self._tt_load(operation, pointer)
        self._tt_store(operation, pointer, value, old == expected)
        return old

    def _ttg_global_scratch_alloc(self, operation: Operation) -> Array:
        return np.asarray(self.allocate(int(operation.attribute("nbytes").split()[0])), np.int64)

    def _scf_for(self, operation: Operation, start: Array, stop: Array, step: Array, *carried: Array) -> list[Array]:
        (block,) = self.graph.bodies(operation)
        current = list(carried)
        for index in range(int(start), int(stop), int(step)):
            yielded = self.run(block, [np.asarray(index, np.int64), *current])
            current = yielded if carried else []
        return current

    def _tt_reduce(self, operation: Operation, *operands: Array) -> list[Array]:
        axis = int(operation.attribute("axis").split()[0])
        return [parts[-1] for parts in self._combinations(operation, operands, axis, is_reversed=False)]

    def _tt_scan(self, operation: Operation, *operands: Array) -> list[Array]:
        axis = int(operation.attribute("axis").split()[0])
        is_reversed = operation.attribute("reverse") == "true"
        scanned = self._combinations(operation, operands, axis, is_reversed=is_reversed)
        return [np.stack(parts[::-1] if is_reversed else parts, axis) for parts in scanned]

    def _combinations(
        self, operation: Operation, operands: Sequence[Array], axis: int, *, is_reversed: bool
    ) -> list[list[Array]]:
        """The running combinations along an axis, a list for each operand."""
        (block,) = self.graph.bodies(operation)
        length = operands[0].shape[axis]
        places = range(length)[::-1] if is_reversed else range(length)
        slices = [[np.take(operand, place, axis) for operand in operands] for place in places]
        running = [slices[0]]
        for part in slices[1:]:
            running.append(self.run(block, [*running[-1], *part]))
        return [list(parts) for parts in zip(*running, strict=True)]
