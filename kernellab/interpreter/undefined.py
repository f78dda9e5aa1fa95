"""What a GPU leaves undefined, followed from where it arises to a store, an address or a branch that depends on it.

There is no harm in it before: the lanes of a division whose divisors were masked off are masked off themselves.
"""

from __future__ import annotations

import numpy as np

from kernellab.interpreter.faults import current_line
from kernellab.interpreter.values import Array, Handle, Taint, joined


def tainted(result: Handle, taint: Taint, lanes: Array) -> Handle:
    """Return a result whose ``lanes`` are undefined for the reason of a taint."""
    result.undefined = joined(result.undefined, Taint(lanes, taint.place, taint.cause), result.data.shape)
    return result


def tainted_by(result: Handle, *operands: Handle) -> Handle:
    """Return the result of an operation by element, undefined where one of its operands is."""
    for operand in operands:
        if operand.undefined is not None:
            result.undefined = joined(result.undefined, operand.undefined, result.data.shape)
    return result


def undefined(result: Handle, lanes: Array, cause: str) -> Handle:
    """Return a result whose ``lanes`` are undefined from here on."""
    return tainted(result, Taint(lanes, current_line(), cause), lanes)


def decided(result: Handle, lhs: Handle, rhs: Handle, *, all_ones: bool = False) -> Handle:
    """Return a result that is defined where one operand alone decides it: being 0, or with ``all_ones`` all bits."""
    taint = result.undefined
    if taint is None:
        return result
    for operand in (lhs, rhs):
        zero = np.zeros((), operand.data.dtype)
        decides = operand.data == (np.invert(zero) if all_ones else zero)
        if operand.undefined is not None:
            decides = decides & ~operand.undefined.lanes
        taint = Taint(taint.lanes & ~decides, taint.place, taint.cause)
    result.undefined = taint if taint.lanes.any() else None
    return result


def chosen_taint(cond: Handle, one: Taint | None, other: Taint | None) -> Taint | None:
    """Return the taint of what a condition chooses of two blocks."""
    lanes = np.where(cond.data, False if one is None else one.lanes, False if other is None else other.lanes)
    taint = one or other
    return Taint(lanes, taint.place, taint.cause) if taint is not None and lanes.any() else None
