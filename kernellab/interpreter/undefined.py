"""Taint tracking: values that are undefined on a GPU, followed to a store, an address or a branch.

An undefined value alone is harmless: lanes with a masked divisor are usually masked off later.
"""

from __future__ import annotations

import numpy as np

from kernellab.interpreter.faults import current_line
from kernellab.interpreter.values import Array, Handle, Taint, join_taints


def add_taint(result: Handle, taint: Taint, lanes: Array) -> Handle:
    """Mark ``lanes`` of a result as undefined for the cause of a taint."""
    result.undefined = join_taints(result.undefined, Taint(lanes, taint.place, taint.cause), result.data.shape)
    return result


def add_operand_taints(result: Handle, *operands: Handle) -> Handle:
    """Mark the lanes of an elementwise result undefined where an operand is."""
    for operand in operands:
        if operand.undefined is not None:
            result.undefined = join_taints(result.undefined, operand.undefined, result.data.shape)
    return result


def mark_undefined(result: Handle, lanes: Array, cause: str) -> Handle:
    """Mark ``lanes`` of a result as undefined at the running line."""
    return add_taint(result, Taint(lanes, current_line(), cause), lanes)


def clear_decided_lanes(result: Handle, lhs: Handle, rhs: Handle, *, all_ones: bool = False) -> Handle:
    """Clear the taint where one operand alone decides the result: by being 0, or with ``all_ones`` all bits."""
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


def select_taint(cond: Handle, one: Taint | None, other: Taint | None) -> Taint | None:
    """Return the taint of a lane-by-lane choice between two blocks."""
    lanes = np.where(cond.data, False if one is None else one.lanes, False if other is None else other.lanes)
    taint = one or other
    return Taint(lanes, taint.place, taint.cause) if taint is not None and lanes.any() else None
