"""The operations of the interpreter that touch memory: loads, stores, atomics, descriptors and block pointers."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as upstream

from kernellab.interpreter.builder import Arithmetic, wrap
from kernellab.interpreter.descriptors import Descriptor, block_pointers, descriptor_block
from kernellab.interpreter.device import register_value
from kernellab.interpreter.external import external_function
from kernellab.interpreter.faults import Unsupported
from kernellab.interpreter.low_precision import decode, encode, is_low_precision
from kernellab.interpreter.memory import CheckedMemory
from kernellab.interpreter.scaled_dot import scaled_operand
from kernellab.interpreter.values import Array, Handle, numpy_dtype, raw_dtype

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
_REDUCTIONS = {"ADD": "ADD", "MIN": "MIN", "MAX": "MAX", "AND": "AND", "OR": "OR", "XOR": "XOR"}


class CheckedBuilder(Arithmetic):
    """Interprets operations on the checked memory of the launch that `attach` sets."""

    def __init__(self) -> None:
        super().__init__()
        self.memory: CheckedMemory | None = None
        self.print_line: Callable[[str], None] = print

    def _checked(self) -> CheckedMemory:
        assert self.memory is not None
        return self.memory

    def _element(self, pointer: Handle) -> Any:
        element = pointer.get_element_ty()
        if is_low_precision(element.name):
            self.low_precision_used.add(element.name)
        return element

    # pointers that are made of numbers, and numbers of pointers

    def create_int_to_ptr(self, src: Handle, dst_type: Any) -> Handle:
        pointer = self.create_bitcast(src, dst_type)
        pointer.data = self._checked().adopted(pointer.data)
        return pointer

    def create_ptr_to_int(self, src: Handle, dst_type: Any) -> Handle:
        self._checked().hands_out_addresses = True
        return self.create_bitcast(src, dst_type)

    # loads and stores; the arguments between value and volatility are cache hints, which differ between versions

    def create_load(self, ptr: Handle, *hints: Any) -> Handle:
        return self._load(ptr, None, None, volatile=bool(hints[-1]))

    def create_masked_load(self, ptrs: Handle, mask: Handle, other: Handle | None, *hints: Any) -> Handle:
        return self._load(ptrs, mask, other, volatile=bool(hints[-1]))

    def create_store(self, ptr: Handle, val: Handle, *hints: Any) -> None:
        self._store(ptr, val, None)

    def create_masked_store(self, ptrs: Handle, value: Handle, mask: Handle, *hints: Any) -> None:
        self._store(ptrs, value, mask)

    def _load(self, ptr: Handle, mask: Handle | None, other: Handle | None, *, volatile: bool) -> Handle:
        element = self._element(ptr)
        low = is_low_precision(element.name)
        rest = None
        if other is not None:
            rest = encode(other.data, element.name) if low else other.data.astype(raw_dtype(element))
        lanes = _lanes(mask, ptr)
        data = self._checked().load(ptr, lanes, rest, raw_dtype(element), volatile=volatile)
        if isinstance(element, tl.pointer_type):
            data = self._checked().adopted(data)
        return Handle(decode(data, element.name) if low else data, element)

    def _store(self, ptr: Handle, value: Handle, mask: Handle | None) -> None:
        element = self._element(ptr)
        if isinstance(element, tl.pointer_type):
            self._checked().hands_out_addresses = True
        if is_low_precision(element.name):
            data = encode(value.data, element.name)
        else:
            data = value.data.astype(raw_dtype(element), copy=False)
        self._checked().store(ptr, np.ascontiguousarray(np.broadcast_to(data, ptr.data.shape)), _lanes(mask, ptr))

    # atomics

    def create_atomic_rmw(self, rmw_op: Any, ptr: Handle, val: Handle, mask: Handle, sem: Any, scope: Any) -> Handle:
        element = self._element(ptr)
        dtype = raw_dtype(element)
        lanes = _lanes(mask, ptr)
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
            raise Unsupported(f"atomic {rmw_op} on {element.name}")
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
        element = self._element(ptr)
        dtype = raw_dtype(element)
        addresses = self._atomic(ptr, None, dtype, sem)
        low = is_low_precision(element.name)
        expected, desired = (
            encode(operand.data, element.name) if low else operand.data.astype(dtype, copy=False)
            for operand in (cmp, val)
        )
        old = _native.atomic_cas(addresses, expected, desired, self.ir_sem_to_interpreter_sem[sem])
        return Handle(decode(old, element.name) if low else old, element)

    def create_atomic_load(self, ptr: Handle, mask: Handle | None, sem: Any, scope: Any) -> Handle:
        self._atomic(ptr, _lanes(mask, ptr), raw_dtype(ptr.get_element_ty()), sem)
        return self._load(ptr, mask, None, volatile=True)

    def create_atomic_store(self, ptr: Handle, val: Handle, mask: Handle | None, sem: Any, scope: Any) -> None:
        element = self._element(ptr)
        lanes = _lanes(mask, ptr)
        addresses = self._atomic(ptr, lanes, raw_dtype(element), sem, reads=False)
        if addresses is not None:
            data = encode(val.data, element.name) if is_low_precision(element.name) else val.data
            values = np.ascontiguousarray(np.broadcast_to(data.astype(raw_dtype(element)), ptr.data.shape))
            _native.store(addresses, values, np.ones(ptr.data.shape, bool) if lanes is None else lanes)

    def _atomic(self, ptr: Handle, lanes: Array | None, dtype: Any, sem: Any, *, reads: bool = True) -> Array | None:
        acquire, release = sem in _ACQUIRING, sem in _RELEASING
        return self._checked().atomic(ptr, lanes, dtype.itemsize, acquire=acquire, release=release, reads=reads)

    # descriptors and block pointers

    def create_make_tensor_descriptor(
        self, base: Handle, shape: Any, strides: Any, tensor_shape: Any, is_signed: bool, padding: Any = None
    ) -> Descriptor:
        return Descriptor.checked(base, shape, strides, tensor_shape, padding)

    def create_descriptor_load(self, desc: Descriptor, indices: list[Handle], *hints: Any) -> Handle:
        ptrs, mask = descriptor_block(desc, indices)
        fill = np.nan if desc.padding == _ir.PADDING_OPTION.PAD_NAN else 0
        other = wrap(np.full(ptrs.data.shape, fill), ptrs.get_element_ty())
        result = self._load(ptrs, mask, other, volatile=False)
        if desc.round_f32_to_tf32 and result.dtype == tl.float32:
            result = Handle(_tf32(result.data), result.dtype)
        return result

    def create_descriptor_store(self, desc: Descriptor, value: Handle, indices: list[Handle]) -> None:
        ptrs, mask = descriptor_block(desc, indices)
        self._store(ptrs, Handle(value.data.reshape(ptrs.data.shape), value.dtype), mask)

    def create_descriptor_reduce(self, kind: Any, desc: Descriptor, value: Handle, indices: list[Handle]) -> None:
        ptrs, mask = descriptor_block(desc, indices)
        element = ptrs.get_element_ty()
        name = str(kind).rpartition(".")[2].upper()
        operation = "FADD" if name == "ADD" and element.is_floating() else _REDUCTIONS.get(name)
        if operation is None:
            raise Unsupported(f"descriptor reductions of kind {name.lower()}")
        shaped = Handle(value.data.reshape(ptrs.data.shape), value.dtype)
        self.create_atomic_rmw(getattr(_ir.ATOMIC_OP, operation), ptrs, shaped, mask, _ir.MEM_SEMANTIC.RELAXED, None)

    def create_descriptor_gather(self, desc: Descriptor, x_offsets: Handle, y_offset: Handle, type: Any) -> Handle:
        rows = [self.create_descriptor_load(desc, [_row(x), y_offset], None).data for x in x_offsets.data]
        return Handle(np.concatenate([row.reshape(1, -1) for row in rows]), desc.base.get_element_ty())

    def create_descriptor_scatter(self, desc: Descriptor, value: Handle, x_offsets: Handle, y_offset: Handle) -> None:
        for row, x in zip(value.data, x_offsets.data, strict=True):
            self.create_descriptor_store(desc, Handle(row, value.dtype), [_row(x), y_offset])

    def create_tensor_pointer_load(self, ptr: Any, boundary_check: Any, padding_option: Any, *hints: Any) -> Handle:
        ptrs, mask = block_pointers(ptr, boundary_check)
        fill = np.nan if padding_option == _ir.PADDING_OPTION.PAD_NAN else 0
        other = wrap(np.full(ptrs.data.shape, fill), ptrs.get_element_ty())
        return self._load(ptrs, mask, other, volatile=bool(hints[-1]))

    def create_tensor_pointer_store(self, ptr: Any, value: Handle, boundary_check: Any, *hints: Any) -> None:
        ptrs, mask = block_pointers(ptr, boundary_check)
        self._store(ptrs, value, mask)

    # the rest of what needs more than arithmetic

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
        left = scaled_operand(lhs, lhs_scale, lhs_format, k_pack=lhs_k_pack, is_rhs=False)
        right = scaled_operand(rhs, rhs_scale, rhs_format, k_pack=rhs_k_pack, is_rhs=True)
        return wrap(np.matmul(left, right) + acc.data, tl.float32)

    def create_print(self, prefix: str, hex: bool, values: list[Handle], is_signed: Any) -> None:
        where = "pid " + str(self.grid_idx)
        for value in values:
            data = value.data.item() if value.data.size == 1 else value.data
            formatter: Any = {"int_kind": _hex}
            shown = np.array2string(np.asarray(data), formatter=formatter) if hex else str(data)
            self.print_line(" ".join(part for part in (where, prefix.strip(), shown) if part))

    def create_extern_elementwise(
        self, lib_name: str, lib_path: str, symbol: str, arguments: list[Handle], ret_type: Any, is_pure: bool
    ) -> Handle:
        function = external_function(symbol)
        if function is None:
            raise Unsupported(f"the external function {symbol}")
        return wrap(function(*(argument.data for argument in arguments)), ret_type.scalar)

    def create_inline_asm(
        self, assembly: str, constraints: str, operands: list[Handle], types: list[Any], is_pure: bool, pack: int
    ) -> Any:
        x, y, z = self.grid_idx
        program = x + self.grid_dim[0] * (y + self.grid_dim[1] * z)
        value = np.array([register_value(assembly, program, self.options.device)])
        self.asks_the_device = True
        kind = types[0]
        shape = kind.shape if kind.is_block() else (1,)
        result = Handle(np.broadcast_to(value.astype(numpy_dtype(kind.scalar)), shape), kind.scalar)
        return SimpleNamespace(get_result=lambda index: result)

    def create_barrier(self) -> None:
        """Wait for the threads of a program: there is one."""


def _lanes(mask: Handle | None, pointer: Handle) -> Array | None:
    """Return the active lanes in the shape of the pointer; None where all are."""
    if mask is None or mask.data.all():
        return None
    return np.broadcast_to(mask.data.astype(bool, copy=False), pointer.data.shape)


def _row(offset: Any) -> Handle:
    return Handle(np.array([offset]), tl.int32)


def _hex(value: int) -> str:
    return hex(value)


def _tf32(values: Array) -> Array:
    """Round float32 to the 10 mantissa bits of TF32, ties to even; infinities and NaNs stay."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    bias = np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
    result = ((bits + bias) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(values), result, values)
