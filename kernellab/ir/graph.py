"""The dataflow graph of a kernel's TTIR, as immutable data, in MLIR's own words.

A module holds functions; a function has one region; a region holds blocks; a block holds operations, which may own
regions in turn. A value is the result of an operation or the argument of a block. Everything is named by its index
in the tuples of `Graph`, counted in the order of the printed IR, so that identity is stable from run to run.

See https://mlir.llvm.org/docs/LangRef/ for the terms.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Location:
    """Where an operation or value comes from in the user's source.

    ``line`` counts from 1 and ``column`` as Triton gives it; ``name`` is the Python variable that a value was
    assigned to. Of an operation that was inlined from a helper, these are the place in the helper, and ``caller`` is
    the place that called it. Each is None where the IR does not say.
    """

    file: str | None = None
    line: int | None = None
    column: int | None = None
    name: str | None = None
    caller: Location | None = None


@dataclass(frozen=True, slots=True)
class Value:
    """An SSA value. ``type`` is its printed MLIR type, ``shape`` is () for a scalar.

    ``element`` is the printed element type (``f32``, ``!tt.ptr<f32>``, ...); ``is_pointer`` tells whether it is an
    address, that is a pointer, a tensor of pointers, a pointer to a tensor or a tensor descriptor.
    ``operation`` is the index of the operation that defines it, or None for the argument of ``block``.
    """

    index: int
    type: str
    shape: tuple[int, ...]
    element: str
    is_pointer: bool
    name: str | None
    location: Location
    operation: int | None
    block: int


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. ``operands``, ``results``, ``regions`` and ``block`` are indices into the `Graph`.

    ``attributes`` are printed name and value pairs, sorted by name; ``successors`` are block indices.
    """

    index: int
    name: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    regions: tuple[int, ...]
    successors: tuple[int, ...]
    attributes: tuple[tuple[str, str], ...]
    location: Location
    block: int


@dataclass(frozen=True, slots=True)
class Block:
    """A straight run of operations. ``arguments`` are value indices, ``successors`` block indices."""

    index: int
    region: int
    arguments: tuple[int, ...]
    operations: tuple[int, ...]
    successors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Region:
    """The blocks that an operation or a function owns. ``owner`` is None for the region of a function."""

    index: int
    owner: int | None
    blocks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Function:
    """One ``tt.func``: the kernel itself, or a helper that was not inlined.

    ``arguments`` are the values of its entry block. ``parameters`` names them as the kernel's signature does, with
    ``outs[1]`` for the member of a tuple; an argument that stands for no parameter of its own (a shape or a stride
    that a host descriptor brings along) has the name of the descriptor.
    """

    name: str
    region: int
    arguments: tuple[int, ...]
    parameters: tuple[str, ...]
    is_kernel: bool
    noinline: bool


@dataclass(frozen=True, slots=True)
class Graph:
    """A whole module. Element i of each tuple has the index i."""

    functions: tuple[Function, ...]
    operations: tuple[Operation, ...]
    values: tuple[Value, ...]
    blocks: tuple[Block, ...]
    regions: tuple[Region, ...]

    @property
    def kernel(self) -> Function:
        """The function that is launched."""
        return next(function for function in self.functions if function.is_kernel)
