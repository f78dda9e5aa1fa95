"""Runs many programs of a grid at once: blocks get a leading axis of programs, and each operation is one of numpy.

Axis 0 of each block, and of each scalar, numbers the programs of the running batch; it has one entry where they share
the value. Constants keep the shape (1,) that they have for one program. An operation that is elementwise needs nothing
for that but broadcasting; those that name axes or shapes are redefined here, and all others end the batch.

The control flow must be the same for all programs of a batch. Where a condition or the number of rounds of a loop
differs, the batch is undone and its programs are run again in groups of equal values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import triton.language as tl

from kernellab.interpreter.access import CheckedBuilder, Descriptor
from kernellab.interpreter.batch_memory import BatchMemory, NotBatchable, UntrackedReads
from kernellab.interpreter.builder import rearranging_method
from kernellab.interpreter.faults import ProgramError
from kernellab.interpreter.promises import PromiseName
from kernellab.interpreter.values import Array, Handle, plain

_MOST_PROGRAMS = 1 << 12
_MOST_LANES = 1 << 18
_MOST_DIVERGENCES = 4

# Operations that broadcasting extends to many programs, and those without a value.
_UNCHANGED = (
    "fadd fsub fmul fdiv frem fneg fabs fma add sub mul sdiv udiv idiv srem urem precise_divf approx_divf umulhi "
    "shl lshr ashr and or xor select clampf minsi minui minimumf minnumf maxsi maxui maximumf maxnumf iabs floor ceil "
    "exp exp2 log log2 sin cos sqrt precise_sqrt rsqrt erf si_to_fp ui_to_fp fp_to_si fp_to_ui fp_ext fp_trunc "
    "fp_to_fp int_cast bitcast int_to_ptr ptr_to_int addptr extern_elementwise assert assume barrier get_num_programs "
    "grid_dependency_wait grid_dependency_launch_dependents load masked_load store masked_store dot "
    "make_tensor_descriptor"
)
_COMPARISONS = "icmpSLE icmpSLT icmpSGE icmpSGT icmpULE icmpULT icmpUGE icmpUGT icmpEQ icmpNE"
_FLOAT_COMPARISONS = "OLT OGT OLE OGE OEQ ONE ULT UGT ULE UGE UEQ UNE"


class Divergence(ProgramError):
    """The programs of a batch take different branches; those with equal numbers in ``ways`` take the same."""

    def __init__(self, values: Array) -> None:
        super().__init__()
        self.ways = np.unique(values.reshape(-1), return_inverse=True)[1]


class BatchTooLarge(ProgramError):
    """The blocks of a batch would take too much memory; each has so many ``lanes`` per program."""

    def __init__(self, lanes: int) -> None:
        super().__init__()
        self.lanes = lanes


def _moving_method(move: Callable[..., Array]) -> Callable[..., Handle]:
    """Return a method that moves elements inside of each program; ``move`` gets the block with its leading axis."""
    return rearranging_method(lambda data, *options: move(data[None] if data.ndim == 1 else data, *options))


class BatchBuilder(CheckedBuilder):
    """Interprets operations on blocks of many programs. A builder is one for the time of a batch only."""

    memory: BatchMemory
    batch_axes = 1
    programs: tuple[Array, Array, Array]

    # what decides the control flow

    def shared_value(self, scalar: Handle) -> Any:
        """Return the value of a scalar; raise `Divergence` where the programs have several."""
        values = scalar.data.ravel()
        if values.size > 1 and (values != values[0]).any():
            raise Divergence(values)
        return values[0].item()

    def loop_range(self, *bounds: Any) -> tuple[range, Array]:
        """Return the counters of the first program, and what each program adds to them; all have equally many."""
        blocks = [bound.handle.data for bound in bounds if isinstance(bound, tl.tensor)]
        if all(block.size == 1 or (block == block.flat[0]).all() for block in blocks):
            return super().loop_range(*bounds)
        for bound in bounds:
            if isinstance(bound, tl.tensor):
                self.check_decision(bound.handle)
        edges = [bound.handle.data if isinstance(bound, tl.tensor) else np.array([int(bound)]) for bound in bounds]
        if any((edge < -(2**31)).any() or (edge >= 2**31).any() for edge in edges):
            raise NotBatchable("a loop beyond 32 bits")
        numbers = [edge.astype(np.int64).reshape(-1, 1) for edge in edges]
        start, stop = numbers[:2] if len(numbers) > 1 else (np.zeros((1, 1), np.int64), numbers[0])
        step = numbers[2] if len(numbers) > 2 else np.ones((1, 1), np.int64)
        distance = int(self.shared_value(Handle(step, tl.int64)))
        self.shared_value(Handle(np.maximum(0, -((start - stop) // distance)), tl.int64))
        first = range(int(start[0, 0]), int(stop[0, 0]), distance)
        return first, start - start[0]

    def check_promise(self, name: PromiseName, value: Handle, values: Any) -> None:
        """Check a promise, along the axes of the block alone."""
        numbers = values if isinstance(values, list | tuple) else [values]
        super().check_promise(name, value, values if value.data.ndim == 1 else [1, *map(plain, numbers)])

    # programs and shapes

    def create_get_program_id(self, axis: int) -> Handle:
        """Return the index of each program along an axis of the grid."""
        index = self.programs[axis]
        return Handle(index[:1] if (index == index[0]).all() else index[:, None], tl.int32)

    def create_make_range(self, ret_ty: Any, start: int, stop: int) -> Handle:
        """Return the integers from ``start`` to ``stop`` - 1, the same for all programs."""
        result = super().create_make_range(ret_ty, start, stop)
        result.data = result.data[None]
        return result

    def create_splat(self, ret_ty: Any, arg: Handle) -> Handle:
        """Fill a block with the scalar of each program: elements of its own, since layouts decide the order of sums."""
        result = self.create_broadcast(self._with_axes(arg, len(ret_ty.shape)), ret_ty.shape)
        result.data = np.ascontiguousarray(result.data)
        return result

    def create_broadcast(self, arg: Handle, shape: Any) -> Handle:
        """Repeat a block along its axes of size 1."""
        self._require_room(*shape)
        return self._broadcast(arg, shape)

    def _require_room(self, *shape: int) -> None:
        """Raise `BatchTooLarge` where a block of this shape for each program would take too much memory."""
        lanes = math.prod(shape)
        if lanes * len(self.programs[0]) > _MOST_LANES and len(self.programs[0]) > 1:
            raise BatchTooLarge(lanes)

    _broadcast = _moving_method(lambda data, shape: np.broadcast_to(data, (len(data), *shape)))
    _with_axes = _moving_method(lambda data, rank: data.reshape(len(data), *(1,) * rank))
    create_reshape = _moving_method(lambda data, shape, allow_reorder: data.reshape(len(data), *shape))
    create_trans = _moving_method(lambda data, order: np.transpose(data, (0, *(axis + 1 for axis in order))))
    create_expand_dims = _moving_method(lambda data, axis: np.expand_dims(data, axis + 1))
    create_unsplat = _moving_method(lambda data: data.reshape(len(data), -1)[:, :1])

    def create_join(self, lhs: Handle, rhs: Handle) -> Handle:
        """Join two blocks along a new last axis."""
        lhs, rhs = self._align(lhs, rhs)
        self._require_room(*lhs.data.shape[1:], 2)
        return super().create_join(lhs, rhs)  # type: ignore[no-any-return]

    def create_split(self, val: Handle) -> tuple[Handle, ...]:
        """Split a block along its last axis of size 2."""
        halves = super().create_split(val)
        return tuple(
            Handle(half.data.reshape(len(val.data), *(half.data.shape[1:] or (1,))), half.dtype) for half in halves
        )

    def create_cat(self, lhs: Handle, rhs: Handle) -> Handle:
        """Concatenate two blocks."""
        lhs, rhs = self._align(lhs, rhs)
        self._require_room(*lhs.data.shape[1:], 2)
        return Handle(np.concatenate([lhs.data, rhs.data], 1), lhs.dtype.scalar)

    def create_gather(self, src: Handle, indices: Handle, axis: int) -> Handle:
        """Take elements along an axis by index."""
        count = max(len(src.data), len(indices.data))
        for handle in (src, indices):
            _require_clean(handle)
        src, indices = (
            Handle(np.broadcast_to(handle.data, (count, *handle.data.shape[1:])), handle.dtype)
            for handle in (src, indices)
        )
        return super().create_gather(src, indices, axis + 1)

    # memory

    def _load(self, ptr: Handle, mask: Handle | None, other: Handle | None, *, volatile: bool) -> Handle:
        if mask is not None:
            _require_clean(mask)
        if mask is None or mask.data.all():
            return super()._load(ptr, None, None, volatile=volatile)
        if other is None:
            ptr, mask = self._align(ptr, mask)
        else:
            ptr, mask, other = self._align(ptr, mask, other)
        return super()._load(ptr, mask, other, volatile=volatile)

    def _store(self, ptr: Handle, value: Handle, mask: Handle | None) -> None:
        if mask is None or mask.data.all():
            ptr, value = self._align(ptr, value)
            super()._store(ptr, value, None)
        else:
            super()._store(*self._align(ptr, value, mask))

    def create_atomic_rmw(self, rmw_op: Any, ptr: Handle, val: Handle, mask: Handle, sem: Any, scope: Any) -> Handle:
        """Update the active lanes of one program after the other."""
        ptr, val, mask = self._align(ptr, val, mask, is_for_each=True)
        return super().create_atomic_rmw(rmw_op, ptr, val, mask, sem, scope)

    def create_descriptor_load(self, desc: Descriptor, indices: list[Handle], *hints: Any) -> Handle:
        """Load the block at ``indices`` of each program."""
        self._require_room(*desc.block_shape)
        return super().create_descriptor_load(desc, [self._with_axes(index, 1) for index in indices], *hints)

    def create_descriptor_store(self, desc: Descriptor, value: Handle, indices: list[Handle]) -> None:
        """Store the block of each program at its ``indices``."""
        self._require_room(*desc.block_shape)
        rank = len(desc.block_shape)
        wide = Handle(np.zeros((len(self.programs[0]), *(1,) * rank), np.int8), tl.int8)
        value = self._align(self.create_reshape(value, desc.block_shape, False), wide)[0]
        every = self._align(*(self._with_axes(index, 1) for index in indices), is_for_each=True)
        super().create_descriptor_store(desc, value, list(every))

    def _align(self, *handles: Handle, is_for_each: bool = False) -> tuple[Handle, ...]:
        """Broadcast blocks to one shape, with ``is_for_each`` to one entry for each program."""
        shape = np.broadcast_shapes(*(handle.data.shape for handle in handles))
        if is_for_each:
            shape = (len(self.programs[0]), *(shape[1:] or shape))
        return tuple(handle if handle.data.shape == shape else _repeat(handle, shape) for handle in handles)


def _repeat(handle: Handle, shape: tuple[int, ...]) -> Handle:
    result = Handle(np.broadcast_to(handle.data, shape), handle.dtype, handle.attr)
    result.bounds, result.wrapped, result.undefined = handle.bounds, handle.wrapped, handle.undefined
    return result


def _require_clean(handle: Handle) -> None:
    if handle.undefined is not None or handle.wrapped is not None:
        raise NotBatchable("lanes that are undefined on a GPU")


def _refusal(name: str) -> Callable[..., Any]:
    def refuse(builder: BatchBuilder, *operands: Any) -> Any:
        raise NotBatchable(name)

    return refuse


def _refuse_others() -> None:
    names = {f"create_{name}" for name in (*_UNCHANGED.split(), *_COMPARISONS.split())}
    names |= {f"create_fcmp{name}" for name in _FLOAT_COMPARISONS.split()}
    for name in dir(CheckedBuilder):
        if name.startswith("create_") and name not in names and name not in vars(BatchBuilder):
            setattr(BatchBuilder, name, _refusal(name))


_refuse_others()


@contextmanager
def batch_builder(builder: CheckedBuilder, memory: BatchMemory) -> Iterator[BatchBuilder]:
    """Turn the builder of this process into one of batches inside a with statement."""
    before, builder.print_line = builder.print_line, _refusal("a print")
    builder.memory, builder.__class__ = memory, BatchBuilder
    assert isinstance(builder, BatchBuilder)
    try:
        yield builder
    finally:
        builder.__class__ = CheckedBuilder
        builder.print_line = before


def run_batches(
    builder: BatchBuilder, function: Callable[..., Any], arguments: dict[str, Any], progress: Callable[[int], None]
) -> None:
    """Run all programs of a launch in batches. ``progress`` is called with the number of programs that are done.

    Raises:
        Exception: the programs must run one by one; the last batch can be undone.
    """
    memory, (x, y, z) = builder.memory, builder.grid_dim
    pending: list[tuple[Array, int]] = []
    total, begun, done, lanes = x * y * z, 0, 0, 1
    while done < total:
        if not pending:
            size = min(total - begun, _MOST_PROGRAMS, max(1, _MOST_LANES // lanes))
            pending.append((np.arange(begun, begun + size), 0))
            begun += size
        programs, divergences = pending.pop(0)
        is_in_order = bool(programs[0] == done and programs[-1] == done + len(programs) - 1)
        memory.begin_batch(programs, is_in_order=is_in_order)
        indices = programs.astype(np.int32)
        builder.programs = indices % x, indices // x % y, indices // (x * y)
        try:
            function(**arguments)
            memory.end_batch()
        except (Divergence, BatchTooLarge, UntrackedReads) as exc:
            memory.undo_batch()
            pending += _parts(programs, divergences, exc, memory)
            pending.sort(key=lambda part: int(part[0][0]))
            lanes = exc.lanes if isinstance(exc, BatchTooLarge) else lanes
            continue
        done += len(programs)
        progress(done)


def _parts(
    programs: Array, divergences: int, cause: Divergence | BatchTooLarge | UntrackedReads, memory: BatchMemory
) -> list[tuple[Array, int]]:
    """The batches in which the programs of a batch that broke off are run again, with their number of divergences."""
    if isinstance(cause, UntrackedReads):
        memory.hazards.track_reads(cause.storage)
        return [(programs, divergences)]
    if isinstance(cause, BatchTooLarge):
        size = max(1, _MOST_LANES // cause.lanes)
        return [(programs[start : start + size], divergences) for start in range(0, len(programs), size)]
    groups = [programs[cause.ways == way] for way in range(int(cause.ways.max()) + 1)]
    if 2 * len(groups) > len(programs) or divergences == _MOST_DIVERGENCES:
        raise NotBatchable("programs that go their own ways")
    return [(group, divergences + 1) for group in groups]
