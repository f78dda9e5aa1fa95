"""The operations of the interpreter that touch memory: loads, stores, atomics, descriptors and block pointers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as upstream

from kernellab.interpreter.builder import ArithmeticBuilder, register_value
from kernellab.interpreter.faults import InterpretedCheckFailed, UnsupportedOperation
from kernellab.interpreter.functions import external_function
from kernellab.interpreter.memory import AccessKind, CheckedMemory
from kernellab.interpreter.promises import PromiseName, promise_values
from kernellab.interpreter.values import (
    LOADED,
    Array,
    Handle,
    Taint,
    decode,
    encode,
    is_low_precision,
    join_taints,
    numpy_dtype,
    raw_dtype,
    scaled_operand,
    wrap,
)

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
            raise InterpretedCheckFailed("the base of a tensor descriptor must be aligned to 16 bytes")
        for stride in strides[:-1]:
            if int(stride.data.item()) * itemsize % _ALIGNMENT:
                raise InterpretedCheckFailed(
                    f"a stride of {int(stride.data.item())} elements in a tensor descriptor is no multiple of 16 bytes"
                )
        if int(strides[-1].data.item()) != 1:
            raise InterpretedCheckFailed("the last stride of a tensor descriptor must be 1")
        return cls(base, list(shape), list(strides), [int(size) for size in block_shape], padding)


def descriptor_block(descriptor: Descriptor, offsets: list[Handle]) -> tuple[Handle, Handle]:
    """Return pointers and mask of the block at ``offsets``."""
    itemsize = _itemsize(descriptor.base)
    last = int(offsets[-1].data.item()) * itemsize
    if last % _ALIGNMENT:
        raise InterpretedCheckFailed(f"the last offset of a descriptor access is {last} bytes, not a multiple of 16")
    inside = range(len(descriptor.block_shape))
    return _block_pointers(
        descriptor.base, descriptor.shape, descriptor.strides, offsets, descriptor.block_shape, inside
    )


def pointers_of_block_pointer(pointer: Any, boundary_check: Any) -> tuple[Handle, Handle]:
    """Return pointers and mask of a ``tl.make_block_ptr`` block, in Triton before 3.8."""
    return _block_pointers(
        pointer.base, pointer.shape, pointer.strides, pointer.offsets, pointer.block_shape, boundary_check
    )


def _block_pointers(
    base: Handle,
    shape: list[Handle],
    strides: list[Handle],
    offsets: list[Handle],
    block_shape: list[int],
    checked: Any,
) -> tuple[Handle, Handle]:
    itemsize = _itemsize(base)
    pointers: Array = np.broadcast_to(base.data, block_shape)
    mask = np.ones(block_shape, dtype=bool)
    for axis, size in enumerate(block_shape):
        along = [1] * len(block_shape)
        along[axis] = size
        offset = (int(offsets[axis].data.item()) + np.arange(size, dtype=np.int64)).reshape(along)
        step = itemsize * int(strides[axis].data.item())
        pointers = pointers + (offset * step).astype(np.uint64)
        if axis in checked:
            mask = mask & (offset >= 0) & (offset < int(shape[axis].data.item()))
    result = Handle(pointers, base.dtype.scalar)
    for scalar in (*offsets, *shape, *strides):
        result.wrapped = join_taints(result.wrapped, scalar.wrapped, mask.shape)
        result.undefined = join_taints(result.undefined, scalar.undefined, mask.shape)
    return result, Handle(mask, tl.int1)


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
_HEX_FORMATTER: Any = {"int_kind": hex}
_REDUCTIONS = frozenset({"ADD", "MIN", "MAX", "AND", "OR", "XOR"})


class CheckedBuilder(ArithmeticBuilder):
    """Interprets operations on the checked memory of the running launch."""

    def __init__(self) -> None:
        super().__init__()
        self.memory: CheckedMemory | None = None
        self.print_line: Callable[[str], None] = print

    def _launch_memory(self) -> CheckedMemory:
        assert self.memory is not None
        return self.memory

    def _element_type(self, pointer: Handle) -> Any:
        element = pointer.get_element_ty()
        if is_low_precision(element.name):
            self.low_precision_used.add(element.name)
        return element

    def check_promise(self, name: PromiseName, value: Handle, values: Any) -> None:
        """Check ``tl.multiple_of`` and its like.

        Raises:
            ValueError: the number of values differs from the number of axes.
        """
        numbers = tuple(promise_values(values))
        if len(numbers) != value.data.ndim:
            raise ValueError(f"tl.{name} got {len(numbers)} values for a block of {value.data.ndim} axes")
        argument = self._launch_memory().argument_of(value) if value.dtype.scalar.is_ptr() else None
        self._launch_memory().promises.add(name, value, numbers, argument)

    def check_decision(self, condition: Handle) -> None:
        """Report a branch or loop with a condition that is undefined on a GPU."""
        if condition.undefined is not None:
            self._launch_memory().report_undefined(condition, None, "a branch or loop")

    # casts between pointers and integers

    def create_int_to_ptr(self, src: Handle, dst_type: Any) -> Handle:
        """Cast 64-bit integers to pointers; notebook addresses are mapped to the kernel's numbering."""
        pointer = self.create_bitcast(src, dst_type)
        pointer.data = self._launch_memory().to_kernel_addresses(pointer.data)
        return pointer

    def create_ptr_to_int(self, src: Handle, dst_type: Any) -> Handle:
        """Return pointers as 64-bit integers, in the kernel's numbering."""
        self._launch_memory().exposes_addresses = True
        return self.create_bitcast(src, dst_type)

    # loads and stores; the arguments between value and volatility are cache hints, which differ between versions

    def create_load(self, ptr: Handle, *hints: Any) -> Handle:
        """Load one element."""
        return self._load(ptr, None, None, volatile=bool(hints[-1]))

    def create_masked_load(self, ptrs: Handle, mask: Handle, other: Handle | None, *hints: Any) -> Handle:
        """Load a block; masked lanes get ``other``, or zero."""
        self._check_mask(mask, ptrs, AccessKind.LOAD)
        if not mask.data.all():
            fill = self._launch_memory().masked_fill(ptrs, has_other=other is not None)
            other = other if fill is None else _filled_block(fill, ptrs)
        return self._load(ptrs, mask, other, volatile=bool(hints[-1]))

    def create_store(self, ptr: Handle, val: Handle, *hints: Any) -> None:
        """Store one element."""
        self._store(ptr, val, None)

    def create_masked_store(self, ptrs: Handle, value: Handle, mask: Handle, *hints: Any) -> None:
        """Store the active lanes of a block."""
        self._check_mask(mask, ptrs, AccessKind.STORE)
        self._store(ptrs, value, mask)

    def _load(self, ptr: Handle, mask: Handle | None, other: Handle | None, *, volatile: bool) -> Handle:
        element = self._element_type(ptr)
        low = is_low_precision(element.name)
        rest = None
        if other is not None:
            rest = encode(other.data, element.name) if low else other.data.astype(raw_dtype(element))
        lanes = _lanes(mask, ptr)
        data = self._launch_memory().load(ptr, lanes, rest, raw_dtype(element), volatile=volatile)
        if isinstance(element, tl.pointer_type):
            data = self._launch_memory().to_kernel_addresses(data)
        result = Handle(decode(data, element.name) if low else data, element, LOADED)
        if other is not None and other.undefined is not None and lanes is not None:
            taint = other.undefined
            result.undefined = Taint(taint.lanes & ~lanes, taint.place, taint.cause)
        return result

    def _check_mask(self, mask: Handle, pointer: Handle, access: AccessKind) -> None:
        if mask.undefined is not None:
            self._launch_memory().report_undefined(mask, None, f"the mask of the {access}", pointer)

    def _store(self, ptr: Handle, value: Handle, mask: Handle | None) -> None:
        element = self._element_type(ptr)
        if isinstance(element, tl.pointer_type):
            self._launch_memory().exposes_addresses = True
        if is_low_precision(element.name):
            data = encode(value.data, element.name)
        else:
            data = value.data.astype(raw_dtype(element), copy=False)
        if value.undefined is not None:
            self._launch_memory().report_undefined(value, _lanes(mask, ptr), "the value of the store", ptr)
        self._launch_memory().store(ptr, np.ascontiguousarray(np.broadcast_to(data, ptr.data.shape)), _lanes(mask, ptr))

    # atomics

    def create_atomic_rmw(self, rmw_op: Any, ptr: Handle, val: Handle, mask: Handle, sem: Any, scope: Any) -> Handle:
        """Update the active lanes in place; return their old values, zeros where no lane is active."""
        element = self._element_type(ptr)
        dtype = raw_dtype(element)
        lanes = _lanes(mask, ptr)
        self._check_mask(mask, ptr, AccessKind.ATOMIC)
        if val.undefined is not None:
            self._launch_memory().report_undefined(val, lanes, "the value of the atomic", ptr)
        addresses = self._atomic(ptr, lanes, dtype, sem)
        if addresses is None:
            return Handle(np.zeros_like(val.data), element)
        if is_low_precision(element.name):
            return self._atomic_low_precision(rmw_op, addresses, val, lanes, element)
        everything = np.ones(ptr.data.shape, bool) if lanes is None else lanes
        values = np.ascontiguousarray(val.data.astype(dtype, copy=False))
        operation = self.ir_rmw_op_to_interpreter_rmw_op[rmw_op]
        old = _native.atomic_rmw(operation, addresses, values, everything, self.ir_sem_to_interpreter_sem[sem])
        return Handle(old, element)

    def _atomic_low_precision(
        self, rmw_op: Any, addresses: Array, val: Handle, lanes: Array | None, element: Any
    ) -> Handle:
        """Update one lane after the other: read, combine in float32, round, write."""
        if rmw_op not in _COMBINE:
            raise UnsupportedOperation(f"atomic {rmw_op} on {element.name}")
        name, dtype = element.name, raw_dtype(element)
        old = np.zeros(addresses.shape, np.float32)
        one = np.ones(1, bool)
        for index in np.ndindex(addresses.shape):
            if lanes is not None and not lanes[index]:
                continue
            address = addresses[index].reshape(1)
            before = decode(_native.load(address, one, np.zeros(1, dtype), dtype), name)
            after = wrap(_COMBINE[rmw_op](before, val.data[index].reshape(1)), element)
            _native.store(address, encode(after.data, name), one)
            old[index] = before[0]
        return Handle(old, element)

    def create_atomic_cas(self, ptr: Handle, cmp: Handle, val: Handle, sem: Any, scope: Any) -> Handle:
        """Store ``val`` where memory equals ``cmp``; return the old values."""
        element = self._element_type(ptr)
        dtype = raw_dtype(element)
        for operand in (cmp, val):
            if operand.undefined is not None:
                self._launch_memory().report_undefined(operand, None, "the value of the atomic", ptr)
        addresses = self._atomic(ptr, None, dtype, sem)
        low = is_low_precision(element.name)
        expected, desired = (
            encode(operand.data, element.name) if low else operand.data.astype(dtype, copy=False)
            for operand in (cmp, val)
        )
        old = _native.atomic_cas(addresses, expected, desired, self.ir_sem_to_interpreter_sem[sem])
        return Handle(decode(old, element.name) if low else old, element)

    def create_atomic_load(self, ptr: Handle, mask: Handle | None, sem: Any, scope: Any) -> Handle:
        """Load as one atomic access."""
        self._atomic(ptr, _lanes(mask, ptr), raw_dtype(ptr.get_element_ty()), sem, writes=False)
        return self._load(ptr, mask, None, volatile=True)

    def create_atomic_store(self, ptr: Handle, val: Handle, mask: Handle | None, sem: Any, scope: Any) -> None:
        """Store as one atomic access."""
        element = self._element_type(ptr)
        lanes = _lanes(mask, ptr)
        addresses = self._atomic(ptr, lanes, raw_dtype(element), sem, reads=False)
        if val.undefined is not None:
            self._launch_memory().report_undefined(val, lanes, "the value of the atomic", ptr)
        if addresses is not None:
            data = encode(val.data, element.name) if is_low_precision(element.name) else val.data
            values = np.ascontiguousarray(np.broadcast_to(data.astype(raw_dtype(element)), ptr.data.shape))
            _native.store(addresses, values, np.ones(ptr.data.shape, bool) if lanes is None else lanes)

    def _atomic(
        self, ptr: Handle, lanes: Array | None, dtype: Any, sem: Any, *, reads: bool = True, writes: bool = True
    ) -> Array | None:
        kind = {"acquire": sem in _ACQUIRING, "release": sem in _RELEASING, "reads": reads, "writes": writes}
        return self._launch_memory().atomic(ptr, lanes, dtype.itemsize, **kind)

    # descriptors and block pointers

    def create_make_tensor_descriptor(
        self, base: Handle, shape: Any, strides: Any, tensor_shape: Any, is_signed: bool, padding: Any = None
    ) -> Descriptor:
        """Make a descriptor on the device.

        Raises:
            CheckFailed: it breaks a rule of the hardware.
        """
        return Descriptor.create(base, shape, strides, tensor_shape, padding)

    def create_descriptor_load(self, desc: Descriptor, indices: list[Handle], *hints: Any) -> Handle:
        """Load the block at ``indices``; elements outside the shape are the padding, zero or NaN."""
        ptrs, mask = descriptor_block(desc, indices)
        result = self._load(ptrs, mask, _padding(desc.padding, ptrs), volatile=False)
        if desc.round_f32_to_tf32 and result.dtype == tl.float32:
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
        """Load through a block pointer; ``boundary_check`` names the axes along which a block is cut off."""
        ptrs, mask = pointers_of_block_pointer(ptr, boundary_check)
        return self._load(ptrs, mask, _padding(padding_option, ptrs), volatile=bool(hints[-1]))

    def create_tensor_pointer_store(self, ptr: Any, value: Handle, boundary_check: Any, *hints: Any) -> None:
        """Store through a block pointer; ``boundary_check`` names the axes along which a block is cut off."""
        ptrs, mask = pointers_of_block_pointer(ptr, boundary_check)
        self._store(ptrs, value, mask)

    # other operations

    def create_dot_scaled(
        self,
        lhs: Handle,
        lhs_scale: Handle | None,
        lhs_format: Any,
        rhs: Handle,
        rhs_scale: Handle | None,
        rhs_format: Any,
        fast_math: bool,
        lhs_k_pack: bool,
        rhs_k_pack: bool,
        acc: Handle,
    ) -> Handle:
        """Multiply microscaled operands in float32 and add ``acc``."""
        left = _scale_operand(lhs, lhs_scale, lhs_format, k_pack=lhs_k_pack, is_rhs=False)
        right = _scale_operand(rhs, rhs_scale, rhs_format, k_pack=rhs_k_pack, is_rhs=True)
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
        """Compute a function of libdevice, or of its AMD counterpart.

        Raises:
            UnsupportedOperation: there is no numpy equivalent.
        """
        function = external_function(symbol)
        if function is None:
            raise UnsupportedOperation(f"the external function {symbol}")
        return wrap(function(*(argument.data for argument in arguments)), ret_type.scalar)

    def create_inline_asm(
        self, assembly: str, constraints: str, operands: list[Handle], types: list[Any], is_pure: bool, pack: int
    ) -> Any:
        """Read a special register; other assembly raises `UnsupportedOperation`."""
        x, y, z = self.grid_idx
        program = x + self.grid_dim[0] * (y + self.grid_dim[1] * z)
        value = np.array([register_value(assembly, program, self.options.multiprocessors)])
        self.reads_device_registers = True
        kind = types[0]
        shape = kind.shape if kind.is_block() else (1,)
        result = Handle(np.broadcast_to(value.astype(numpy_dtype(kind.scalar)), shape), kind.scalar)
        return SimpleNamespace(get_result=lambda index: result)


def _padding(option: Any, pointer: Handle) -> Handle:
    """The block of padding, zero or NaN, for elements outside a descriptor's shape."""
    fill = np.nan if option == _ir.PADDING_OPTION.PAD_NAN else 0
    return wrap(np.full(pointer.data.shape, fill), pointer.get_element_ty())


def _filled_block(fill: float, pointer: Handle) -> Handle:
    """A block filled with one value, as a load returns it; in integers, an infinity is their largest or smallest."""
    element = pointer.get_element_ty()
    dtype = raw_dtype(element)
    if element.is_int() and not np.isfinite(fill):
        limits = np.iinfo(dtype)
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
