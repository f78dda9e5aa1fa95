"""The operations of the interpreter that touch memory: loads, stores, atomics, descriptors and block pointers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as upstream

from kernellab.interpreter.builder import ArithmeticBuilder, register_value
from kernellab.interpreter.faults import InterpretedCheckError, UnsupportedOperation
from kernellab.interpreter.functions import external_function
from kernellab.interpreter.memory import CheckedMemory
from kernellab.interpreter.promises import PromiseName, PromiseTaint
from kernellab.interpreter.recording import RecordingSites, ValueRecorder
from kernellab.interpreter.scaled_operands import scaled_operand
from kernellab.interpreter.values import (
    LOADED,
    Array,
    Handle,
    add_operand_taints,
    add_taint,
    holds_payloads,
    is_low_precision,
    join_taints,
    mark_undefined,
    numpy_dtype,
    plain,
    raw_dtype,
    to_bits,
    to_values,
    wrap,
)
from kernellab.launch.recorded_values import ValueKind, program_number

_ALIGNMENT = 16


@dataclass(slots=True)
class Descriptor:
    """A view of ``base`` that is read and written in blocks; blocks are cut off at ``shape``."""

    base: Handle
    shape: list[Handle]
    strides: list[Handle]
    block_shape: list[int]
    padding: Any
    round_f32_to_tf32: bool = False

    @classmethod
    def create(cls, base: Handle, shape: Any, strides: Any, block_shape: Any, padding: Any) -> Descriptor:
        """Make a descriptor after checking the alignment and stride rules of the hardware.

        The CUDA programming guide, "Tensor Memory Access": the address and every stride but the last are multiples of
        16 bytes, the last stride is one element.
        """
        itemsize = _itemsize(base)
        if int(base.data.item()) % _ALIGNMENT:
            raise InterpretedCheckError("the base of a tensor descriptor must be aligned to 16 bytes")
        for stride in strides[:-1]:
            if int(stride.data.item()) * itemsize % _ALIGNMENT:
                raise InterpretedCheckError(
                    f"a stride of {int(stride.data.item())} elements in a descriptor is not a multiple of 16 bytes"
                )
        if int(strides[-1].data.item()) != 1:
            raise InterpretedCheckError("the last stride of a tensor descriptor must be 1")
        return cls(base, list(shape), list(strides), [int(size) for size in block_shape], padding)


def descriptor_block(descriptor: Descriptor, offsets: list[Handle]) -> tuple[Handle, Handle]:
    """Return pointers and mask of the block at ``offsets``."""
    last = offsets[-1].data.astype(np.int64) * _itemsize(descriptor.base)
    if (last % _ALIGNMENT).any():
        raise InterpretedCheckError(
            f"the last offset of a descriptor access is {last.item()} bytes, not a multiple of 16"
        )
    return _block_pointers(descriptor, offsets, range(len(descriptor.block_shape)))


def _block_pointers(view: Any, offsets: list[Handle], checked: Any) -> tuple[Handle, Handle]:
    """Return pointers and mask of a block of a descriptor, or of a ``tl.make_block_ptr`` in Triton before 3.8.

    ``checked`` are the axes along which the block is cut off.
    """
    itemsize, rank = _itemsize(view.base), len(view.block_shape)
    pointers, mask = _spread(view.base, rank), np.ones(view.block_shape, dtype=bool)
    for axis, size in enumerate(view.block_shape):
        along = [1] * rank
        along[axis] = size
        offset = _spread(offsets[axis], rank).astype(np.int64) + np.arange(size, dtype=np.int64).reshape(along)
        step = itemsize * int(view.strides[axis].data.item())
        pointers = pointers + (offset * step).astype(np.uint64)
        if axis in checked:
            mask = mask & (offset >= 0) & (offset < int(view.shape[axis].data.item()))
    pointers = np.broadcast_to(pointers, np.broadcast_shapes(pointers.shape, view.block_shape))
    mask = np.broadcast_to(mask, pointers.shape)
    result = Handle(pointers, view.base.dtype.scalar)
    for scalar in (*offsets, *view.shape, *view.strides):
        result.wrapped = join_taints(result.wrapped, scalar.wrapped, mask.shape)
        result.undefined = join_taints(result.undefined, scalar.undefined, mask.shape)
    return result, Handle(mask, tl.int1)


def _spread(scalar: Handle, rank: int) -> Array:
    """A scalar with the axes of a block, for each program of a batch."""
    return scalar.data.reshape(*scalar.data.shape[:-1], *(1,) * rank)


def _itemsize(base: Handle) -> int:
    return max(1, int(base.get_element_ty().primitive_bitwidth) // 8)


_ir = upstream._ir
_native = upstream._interpreter
_ACQUIRING = (_ir.MEM_SEMANTIC.ACQUIRE, _ir.MEM_SEMANTIC.ACQUIRE_RELEASE)
_RELEASING = (_ir.MEM_SEMANTIC.RELEASE, _ir.MEM_SEMANTIC.ACQUIRE_RELEASE)
_COMBINE: dict[Any, Callable[[Array, Array], Array]] = {
    _ir.ATOMIC_OP.FADD: np.add,
    _ir.ATOMIC_OP.MAX: np.maximum,
    _ir.ATOMIC_OP.MIN: np.minimum,
    _ir.ATOMIC_OP.XCHG: lambda old, new: new,
}
_NOTHING = np.zeros(1, np.int64)
_HEX_FORMATTER: Any = {"int_kind": hex}
_REDUCTIONS = frozenset({"ADD", "MIN", "MAX", "AND", "OR", "XOR"})


class CheckedBuilder(ArithmeticBuilder):
    """Interprets operations on the checked memory of the running launch."""

    memory: CheckedMemory
    batch_axes = 0

    def __init__(self) -> None:
        super().__init__()
        self.recorded_sites: RecordingSites | None = None
        self.recorder: ValueRecorder | None = None
        self.print_line: Callable[[str], None] = print
        self.unbatchable: WeakSet[Callable[..., Any]] = WeakSet()

    def _element_type(self, pointer: Handle) -> Any:
        element = pointer.get_element_ty()
        if is_low_precision(element.name):
            self.low_precision_used.add(element.name)
        return element

    def check_promise(self, name: PromiseName, value: Handle, values: Any) -> None:
        """Check ``tl.multiple_of`` and its like."""
        numbers = tuple(int(plain(number)) for number in (values if isinstance(values, list | tuple) else [values]))
        if len(numbers) != value.data.ndim:
            raise ValueError(f"tl.{name} got {len(numbers)} values for a block of {value.data.ndim} axes")
        argument = self.memory.argument_of(value) if value.dtype.scalar.is_ptr() else None
        self.memory.promises.add(name, value, numbers, argument)

    def check_decision(self, condition: Handle) -> None:
        """Report a branch or loop with a condition that is undefined on a GPU."""
        self.memory.report_undefined(condition, None, "a branch or loop")

    def shared_value(self, scalar: Handle) -> Any:
        """Return the value of a scalar that decides how the program goes on."""
        return scalar.data.item()

    def loop_range(self, *bounds: Any) -> tuple[range, Array]:
        """Return the counters of a loop, and what each program of a batch adds to them."""
        return range(*(bound.__index__() for bound in bounds)), _NOTHING

    # casts between pointers and integers

    def create_int_to_ptr(self, src: Handle, dst_type: Any) -> Handle:
        """Cast 64-bit integers to pointers; notebook addresses are mapped to the kernel's numbering."""
        pointer = self.create_bitcast(src, dst_type)
        pointer.data = self.memory.to_kernel_addresses(pointer.data)
        return pointer

    def create_ptr_to_int(self, src: Handle, dst_type: Any) -> Handle:
        """Return pointers as 64-bit integers, in the kernel's numbering."""
        self.memory.exposes_addresses = True
        return self.create_bitcast(src, dst_type)

    # loads and stores; the arguments between value and volatility are cache hints, which differ between versions

    def create_load(self, ptr: Handle, *hints: Any) -> Handle:
        """Load one element."""
        return self._load(ptr, None, None, volatile=bool(hints[-1]))

    def create_masked_load(self, ptrs: Handle, mask: Handle, other: Handle | None, *hints: Any) -> Handle:
        """Load a block; masked lanes get ``other``, or zero."""
        if not isinstance(mask.undefined, PromiseTaint):
            self.memory.report_undefined(mask, None, "the mask of the load", ptrs)
        if not mask.data.all():
            fill = self.memory.masked_fill(ptrs, has_other=other is not None)
            other = other if fill is None else _filled_block(fill, ptrs)
        return self._load(ptrs, mask, other, volatile=bool(hints[-1]))

    def create_store(self, ptr: Handle, val: Handle, *hints: Any) -> None:
        """Store one element."""
        self._store(ptr, val, None)

    def create_masked_store(self, ptrs: Handle, value: Handle, mask: Handle, *hints: Any) -> None:
        """Store the active lanes of a block."""
        self.memory.report_undefined(mask, None, "the mask of the store", ptrs)
        self._store(ptrs, value, mask)

    def _load(self, ptr: Handle, mask: Handle | None, other: Handle | None, *, volatile: bool) -> Handle:
        element = self._element_type(ptr)
        rest = None if other is None else to_bits(other.data, element)
        lanes = _lanes(mask, ptr)
        data = self.memory.load(ptr, lanes, rest, raw_dtype(element), volatile=volatile)
        if isinstance(element, tl.pointer_type):
            data = self.memory.to_kernel_addresses(data)
        result = Handle(to_values(data, element), element, LOADED)
        if other is not None and other.undefined is not None and lanes is not None:
            result.undefined = other.undefined.at(other.undefined.lanes & ~lanes)
        if isinstance(ptr.undefined, PromiseTaint):
            taken = ptr.undefined.lanes if lanes is None else ptr.undefined.lanes & lanes
            result = add_taint(result, ptr.undefined, taken)
        if mask is not None and isinstance(mask.undefined, PromiseTaint):
            result = add_operand_taints(result, mask)
        if self.recorder is not None:
            self.recorder.add_access(ValueKind.LOAD, ptr, lanes, result)
        return result

    def _store(self, ptr: Handle, value: Handle, mask: Handle | None) -> None:
        element, lanes = self._element_type(ptr), _lanes(mask, ptr)
        if isinstance(element, tl.pointer_type):
            self.memory.exposes_addresses = True
        self.memory.report_undefined(value, lanes, "the value of the store", ptr)
        if self.recorder is not None:
            self.recorder.add_access(ValueKind.STORE, ptr, lanes, value)
        data = np.broadcast_to(to_bits(value.data, element), ptr.data.shape)
        self.memory.store(ptr, np.ascontiguousarray(data), lanes)

    # atomics

    def create_atomic_rmw(self, rmw_op: Any, ptr: Handle, val: Handle, mask: Handle, sem: Any, scope: Any) -> Handle:
        """Update the active lanes in place; return their old values; those of other lanes are undefined, here 0."""
        element, lanes = self._element_type(ptr), _lanes(mask, ptr)
        self.memory.report_undefined(mask, None, "the mask of the atomic", ptr)
        self.memory.report_undefined(val, lanes, "the value of the atomic", ptr)
        self._record_atomic(ptr, lanes, val)
        addresses = self._atomic(ptr, lanes, element, sem)
        active = np.ones(ptr.data.shape, bool) if lanes is None else lanes
        if addresses is None:
            old = np.zeros(ptr.data.shape, val.data.dtype)
        elif is_low_precision(element.name) or holds_payloads(element):
            old = self._atomic_by_lane(rmw_op, addresses, val, active, element)
        else:
            values = np.ascontiguousarray(to_bits(val.data, element))
            operation = self.ir_rmw_op_to_interpreter_rmw_op[rmw_op]
            old = _native.atomic_rmw(operation, addresses, values, active, self.ir_sem_to_interpreter_sem[sem])
            old[~active] = 0
        result = Handle(old, element)
        return result if lanes is None else mark_undefined(result, ~lanes, "what an atomic returns in a masked lane")

    def _atomic_by_lane(self, rmw_op: Any, addresses: Array, val: Handle, lanes: Array, element: Any) -> Array:
        """Update one lane after the other: read, combine as computed with, round, write."""
        one, dtype = np.ones(1, bool), raw_dtype(element)
        old = np.zeros(addresses.shape, numpy_dtype(element))
        values = np.broadcast_to(val.data, addresses.shape)
        for index in map(tuple, np.argwhere(lanes)):
            address = addresses[index].reshape(1)
            before = to_values(_native.load(address, one, np.zeros(1, dtype), dtype), element)
            after = self.combine_atomically(rmw_op, Handle(before, element), Handle(values[index].reshape(1), element))
            _native.store(address, to_bits(after.data, element), one)
            old[index] = before[0]
        return old

    def combine_atomically(self, rmw_op: Any, old: Handle, new: Handle) -> Handle:
        """Return the value that an atomic of floats leaves in memory.

        Raises:
            UnsupportedOperation: the operation is not one of floats.
        """
        if rmw_op not in _COMBINE:
            raise UnsupportedOperation(f"atomic {rmw_op} on {old.dtype.name}")
        if rmw_op == _ir.ATOMIC_OP.FADD:
            return self.create_fadd(old, new)  # type: ignore[no-any-return]
        return wrap(_COMBINE[rmw_op](old.data, new.data), old.dtype)

    def create_atomic_cas(self, ptr: Handle, cmp: Handle, val: Handle, sem: Any, scope: Any) -> Handle:
        """Store ``val`` where memory equals ``cmp``; return the old values."""
        element = self._element_type(ptr)
        for operand in (cmp, val):
            self.memory.report_undefined(operand, None, "the value of the atomic", ptr)
        self._record_atomic(ptr, None, val)
        addresses = self._atomic(ptr, None, element, sem)
        expected, desired = (to_bits(operand.data, element) for operand in (cmp, val))
        old = _native.atomic_cas(addresses, expected, desired, self.ir_sem_to_interpreter_sem[sem])
        return Handle(to_values(old, element), element)

    def create_atomic_load(self, ptr: Handle, mask: Handle | None, sem: Any, scope: Any) -> Handle:
        """Load as one atomic access."""
        self._atomic(ptr, _lanes(mask, ptr), ptr.get_element_ty(), sem, writes=False)
        return self._load(ptr, mask, None, volatile=True)

    def create_atomic_store(self, ptr: Handle, val: Handle, mask: Handle | None, sem: Any, scope: Any) -> None:
        """Store as one atomic access."""
        element, lanes = self._element_type(ptr), _lanes(mask, ptr)
        addresses = self._atomic(ptr, lanes, element, sem, reads=False)
        self.memory.report_undefined(val, lanes, "the value of the atomic", ptr)
        self._record_atomic(ptr, lanes, val)
        if addresses is not None:
            values = np.ascontiguousarray(np.broadcast_to(to_bits(val.data, element), ptr.data.shape))
            _native.store(addresses, values, np.ones(ptr.data.shape, bool) if lanes is None else lanes)

    def _atomic(
        self, ptr: Handle, lanes: Array | None, element: Any, sem: Any, *, reads: bool = True, writes: bool = True
    ) -> Array | None:
        is_ordering = {"acquire": sem in _ACQUIRING, "release": sem in _RELEASING}
        return self.memory.atomic(ptr, lanes, raw_dtype(element).itemsize, reads=reads, writes=writes, **is_ordering)

    def _record_atomic(self, ptr: Handle, lanes: Array | None, operand: Handle) -> None:
        if self.recorder is not None:
            self.recorder.add_access(ValueKind.ATOMIC, ptr, lanes, operand)

    # descriptors and block pointers

    def create_make_tensor_descriptor(
        self, base: Handle, shape: Any, strides: Any, tensor_shape: Any, is_signed: bool, padding: Any = None
    ) -> Descriptor:
        """Make a descriptor on the device."""
        return Descriptor.create(base, shape, strides, tensor_shape, padding)

    def create_descriptor_load(self, desc: Descriptor, indices: list[Handle], *hints: Any) -> Handle:
        """Load the block at ``indices``; elements outside the shape are the padding, zero or NaN."""
        ptrs, mask = descriptor_block(desc, indices)
        result = self._load(ptrs, mask, _padding(desc.padding, ptrs), volatile=False)
        if desc.round_f32_to_tf32 and result.dtype == tl.float32 and not holds_payloads(result.dtype):
            result = Handle(_tf32(result.data), result.dtype)
        return result

    def create_descriptor_store(self, desc: Descriptor, value: Handle, indices: list[Handle]) -> None:
        """Store a block at ``indices``, cut off at the shape."""
        ptrs, mask = descriptor_block(desc, indices)
        self._store(ptrs, Handle(value.data.reshape(ptrs.data.shape), value.dtype), mask)

    def create_descriptor_reduce(self, kind: Any, desc: Descriptor, value: Handle, indices: list[Handle]) -> None:
        """Combine a block with memory at ``indices``, element by element and atomically."""
        ptrs, mask = descriptor_block(desc, indices)
        element = ptrs.get_element_ty()
        name = str(kind).rpartition(".")[2].upper()
        if name not in _REDUCTIONS:
            raise UnsupportedOperation(f"descriptor reductions of kind {name.lower()}")
        operation = "FADD" if name == "ADD" and element.is_floating() else name
        shaped = Handle(value.data.reshape(ptrs.data.shape), value.dtype)
        self.create_atomic_rmw(getattr(_ir.ATOMIC_OP, operation), ptrs, shaped, mask, _ir.MEM_SEMANTIC.RELAXED, None)

    def create_descriptor_gather(self, desc: Descriptor, x_offsets: Handle, y_offset: Handle, type: Any) -> Handle:
        """Load the rows ``x_offsets`` from column ``y_offset``: a block of (rows, descriptor columns)."""
        rows = [self.create_descriptor_load(desc, [_row(x), y_offset], None).data for x in x_offsets.data]
        return Handle(np.concatenate([row.reshape(1, -1) for row in rows]), desc.base.get_element_ty())

    def create_descriptor_scatter(self, desc: Descriptor, value: Handle, x_offsets: Handle, y_offset: Handle) -> None:
        """Store each row of a block at its row of ``x_offsets``, from column ``y_offset``."""
        for row, x in zip(value.data, x_offsets.data, strict=True):
            self.create_descriptor_store(desc, Handle(row, value.dtype), [_row(x), y_offset])

    def create_tensor_pointer_load(self, ptr: Any, boundary_check: Any, padding_option: Any, *hints: Any) -> Handle:
        """Load through a block pointer."""
        ptrs, mask = _block_pointers(ptr, ptr.offsets, boundary_check)
        return self._load(ptrs, mask, _padding(padding_option, ptrs), volatile=bool(hints[-1]))

    def create_tensor_pointer_store(self, ptr: Any, value: Handle, boundary_check: Any, *hints: Any) -> None:
        """Store through a block pointer."""
        ptrs, mask = _block_pointers(ptr, ptr.offsets, boundary_check)
        self._store(ptrs, value, mask)

    # other operations

    def create_dot_scaled(self, *operands: Any) -> Handle:
        """Multiply microscaled operands in float32 and add the accumulator."""
        *pairs, _fast_math, lhs_k_pack, rhs_k_pack, acc = operands
        left = _scale_operand(*pairs[:3], k_pack=lhs_k_pack, is_rhs=False)
        right = _scale_operand(*pairs[3:], k_pack=rhs_k_pack, is_rhs=True)
        return wrap(np.matmul(left, right) + acc.data, tl.float32)

    def create_print(self, prefix: str, hex: bool, values: list[Handle], is_signed: Any) -> None:
        """Print the values after the program's id, each on its own line."""
        where = "pid " + str(self.grid_idx)
        for value in values:
            data = value.data.item() if value.data.size == 1 else value.data
            shown = np.array2string(np.asarray(data), formatter=_HEX_FORMATTER) if hex else str(data)
            self.print_line(" ".join(part for part in (where, prefix.strip(), shown) if part))

    def create_extern_elementwise(
        self, lib_name: str, lib_path: str, symbol: str, arguments: list[Handle], ret_type: Any, is_pure: bool
    ) -> Handle:
        """Compute a function of libdevice, or of its AMD counterpart."""
        function = external_function(symbol)
        if function is None:
            raise UnsupportedOperation(f"the external function {symbol}")
        result = wrap(function(*(argument.data for argument in arguments)), ret_type.scalar)
        return add_operand_taints(result, *arguments)

    def create_inline_asm(
        self, assembly: str, constraints: str, operands: list[Handle], types: list[Any], is_pure: bool, pack: int
    ) -> Any:
        """Read a special register; other assembly raises `UnsupportedOperation`."""
        program = program_number(self.grid_dim, self.grid_idx)
        value = np.array([register_value(assembly, program, self.options.multiprocessors)])
        self.reads_device_registers = True
        kind = types[0]
        shape = kind.shape if kind.is_block() else (1,)
        result = Handle(np.broadcast_to(value.astype(numpy_dtype(kind.scalar)), shape), kind.scalar)
        return SimpleNamespace(get_result=lambda index: result)


def _padding(option: Any, pointer: Handle) -> Handle:
    """The block of padding, zero or NaN, for elements outside a descriptor's shape."""
    return _filled_block(np.nan if option == _ir.PADDING_OPTION.PAD_NAN else 0, pointer)


def _filled_block(fill: float, pointer: Handle) -> Handle:
    """A block filled with one value, as a load returns it; in integers, an infinity is their largest or smallest."""
    element = pointer.get_element_ty()
    if element.is_int() and not np.isfinite(fill):
        limits = np.iinfo(raw_dtype(element))
        fill = limits.max if fill > 0 else limits.min
    return wrap(np.full(pointer.data.shape, fill), element)


def _lanes(mask: Handle | None, pointer: Handle) -> Array | None:
    """The active lanes in the shape of the pointer; None if all are active."""
    if mask is None or mask.data.all():
        return None
    return np.broadcast_to(mask.data.astype(bool, copy=False), pointer.data.shape)


def _scale_operand(value: Handle, scale: Handle | None, element_format: Any, *, k_pack: bool, is_rhs: bool) -> Array:
    is_e2m1 = element_format == _ir.ScaleDotElemTypeTY.E2M1
    scales = None if scale is None else scale.data
    return scaled_operand(value.data, scales, is_e2m1=is_e2m1, k_pack=k_pack, is_rhs=is_rhs)


def _row(offset: Any) -> Handle:
    return Handle(np.array([offset]), tl.int32)


def _tf32(values: Array) -> Array:
    """Round float32 to the 10 mantissa bits of TF32, ties to even; infinities and NaNs stay."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    bias = np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
    result = ((bits + bias) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(values), result, values)
