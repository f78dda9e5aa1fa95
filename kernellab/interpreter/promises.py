"""Checks a kernel's promises to the compiler: `tl.multiple_of`, `tl.max_contiguous`, `tl.max_constancy`.

The compiler trusts a promise and accesses several elements as one. By Triton's documentation, the elements form groups
along each axis; `tl.multiple_of` is about the first element of each.

Rows beyond the end of a matrix are often wrapped around (``rows % m``) and said to be contiguous. That is harmless
where what is loaded there is used nowhere, so lanes that break such a promise are tainted, and their use is reported.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from kernellab.interpreter.faults import Findings, Line, current_line
from kernellab.interpreter.values import LOADED, Array, Handle, Taint, add_taint, raw_dtype
from kernellab.launch.run import FindingKind

PromiseName = Literal["multiple_of", "max_contiguous", "max_constancy"]
_MOST_BYTES_ALIGNED = 1 << 16  # up to here, addresses of the kernel are aligned as those of the notebook


class PromiseTaint(Taint):
    """Lanes that are not what the kernel promises the compiler: a load there may take other elements on a GPU."""

    __slots__ = ()


@dataclass(slots=True)
class _Multiples:
    """A `tl.multiple_of` of a value; ``contiguity`` is its `tl.max_contiguous`, if any."""

    value: Handle
    divisors: tuple[int, ...]
    place: Line | None
    argument: str | None
    contiguity: tuple[int, ...] | None = None


class Promises:
    """Checks the promises of a launch against the values.

    A later `tl.max_contiguous` of the same value may define the groups of a `tl.multiple_of`, so the latter stays
    pending until the next promise or the end of its program.
    """

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self._multiples: _Multiples | None = None

    def add(self, name: PromiseName, value: Handle, values: tuple[int, ...], argument: str | None) -> None:
        """Check a promise; ``argument`` is the argument that pointers point into."""
        multiples = self._multiples
        if multiples is not None and multiples.value is not value:
            self.check_multiples()
            multiples = None
        if name == "multiple_of":
            known = multiples.contiguity if multiples is not None else None
            self.check_multiples()
            self._multiples = _Multiples(value, values, current_line(), argument, known)
            return
        if name == "max_contiguous" and multiples is not None:
            multiples.contiguity = values
        step = _step(value) if name == "max_contiguous" else 0
        for axis, size in enumerate(values):
            groups = _groups(value.data, axis, size)
            strays = groups[..., 1:] != groups[..., :-1] + groups.dtype.type(step)
            if strays.any():
                first = tuple(int(i) for i in np.argwhere(strays)[0])
                before, after = groups[first], groups[(*first[:-1], first[-1] + 1)]
                detail = f"{_value_text(value, after, argument)} comes after {_value_text(value, before, argument)}"
                cause = f"tl.{name}({size}) does not hold: {detail}"
                add_taint(value, PromiseTaint(strays, current_line(), cause), _broken_lanes(value, axis, groups, step))

    def check_multiples(self) -> None:
        """Check the pending `tl.multiple_of`."""
        multiples, self._multiples = self._multiples, None
        if multiples is None:
            return
        value = multiples.value
        for axis, divisor in enumerate(multiples.divisors):
            is_pointer = value.dtype.scalar.is_ptr()
            checked = min(divisor & -divisor, _MOST_BYTES_ALIGNED) if is_pointer else divisor
            firsts = _firsts(multiples, axis)
            if checked > 1 and (strays := firsts[firsts % firsts.dtype.type(checked) != 0]).size:
                detail = f"{_value_text(value, strays[0], multiples.argument)} is not a multiple"
                text = f"tl.multiple_of({divisor}) does not hold: {detail}"
                kind = FindingKind.FALSE_PROMISE
                self.findings.add(kind, multiples.argument, text, strays.size, line=multiples.place)


def _step(value: Handle) -> int:
    return raw_dtype(value.get_element_ty()).itemsize if value.dtype.scalar.is_ptr() else 1


def _broken_lanes(value: Handle, axis: int, groups: Array, step: int) -> Array:
    """Return the lanes that are not what follows from the first lane of their group."""
    promised = groups[..., :1] + (np.arange(groups.shape[-1]) * step).astype(groups.dtype)
    along = np.moveaxis(value.data, axis, -1)
    return np.moveaxis((groups != promised).reshape(along.shape), -1, axis)


def _groups(data: Array, axis: int, size: int) -> Array:
    """Return a block with the groups of ``size`` elements along an axis as its last axis."""
    along = np.moveaxis(data, axis, -1)
    return along.reshape(*along.shape[:-1], -1, math.gcd(along.shape[-1], size))


def _firsts(multiples: _Multiples, axis: int) -> Array:
    """Return the first elements of the groups along an axis.

    The compiler knows no groups in loaded values. In computed values it may, so there consecutive elements form one
    group.
    """
    value = multiples.value
    if multiples.contiguity is not None:
        return _groups(value.data, axis, multiples.contiguity[axis])[..., 0].ravel()
    along = np.moveaxis(value.data, axis, -1)
    begins = np.ones(along.shape, bool)
    if value.attr is not LOADED:
        begins[..., 1:] = along[..., 1:] != along[..., :-1] + along.dtype.type(_step(value))
    firsts: Array = along[begins]
    return firsts


def _value_text(value: Handle, element: int, argument: str | None) -> str:
    if not value.dtype.scalar.is_ptr():
        return str(element)
    return f"address {int(element) % _MOST_BYTES_ALIGNED:#x} in {argument or 'no argument'}"
