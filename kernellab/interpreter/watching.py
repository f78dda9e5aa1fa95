"""Watches every operation of a recorded program for a NaN or an infinity that its operands lack."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from kernellab.interpreter.recording import ValueRecorder
from kernellab.interpreter.values import Array, Handle
from kernellab.launch.recorded_values import NonFinite

_KINDS: tuple[tuple[NonFinite, Callable[[Array], Array]], ...] = ((NonFinite.NAN, np.isnan), (NonFinite.INF, np.isinf))
_MOST_OPERANDS = 3
_OF_MATRICES = frozenset({"dot", "dot_scaled"})


def watch_operations(builder: Any, recorder: ValueRecorder) -> None:
    """Let each operation of a builder report to the recorder, until `unwatch_operations`."""
    for name in dir(type(builder)):
        if name.startswith("create_"):
            setattr(builder, name, _report_result(getattr(builder, name), name.removeprefix("create_"), recorder))


def unwatch_operations(builder: Any) -> None:
    """End what `watch_operations` began."""
    for name in [name for name in vars(builder) if name.startswith("create_")]:
        delattr(builder, name)


def _report_result(operation: Callable[..., Any], name: str, recorder: ValueRecorder) -> Callable[..., Any]:
    @wraps(operation)
    def reporting(*arguments: Any, **options: Any) -> Any:
        result = operation(*arguments, **options)
        operands = [argument for argument in arguments if isinstance(argument, Handle)]
        is_access = any(operand.dtype.is_ptr() or operand.dtype.scalar.is_ptr() for operand in operands)
        if operands and isinstance(result, Handle) and result.data.dtype.kind == "f" and not is_access:
            _report(name, operands, result, recorder)
        return result

    return reporting


def _report(name: str, operands: list[Handle], result: Handle, recorder: ValueRecorder) -> None:
    if np.isfinite(result.data).all():
        return
    floats = [operand.data for operand in operands if operand.data.dtype.kind == "f"]
    for kind, has in _KINDS:
        lanes = has(result.data)
        for data in floats:
            try:
                lanes = lanes & ~np.broadcast_to(has(data), lanes.shape)
            except ValueError:  # operands of a product of matrices have other shapes
                lanes = lanes & (not has(data).any())
        if lanes.any():
            first = np.unravel_index(int(lanes.argmax()), lanes.shape)
            numbers = tuple(_lane(operand.data, lanes.shape, first) for operand in operands[:_MOST_OPERANDS])
            is_elementwise = name not in _OF_MATRICES and all(number is not None for number in numbers)
            shown = tuple(number for number in numbers if number is not None) if is_elementwise else ()
            number, dtype = float(result.data[first]), result.dtype.scalar.name
            recorder.add_event(kind, name, shown, number, dtype, int(lanes.sum()))


def _lane(data: Array, shape: tuple[int, ...], lane: tuple[Any, ...]) -> float | None:
    """An operand in a lane of the result, None where the shapes do not match."""
    try:
        return float(np.broadcast_to(data, shape)[lane])
    except (ValueError, TypeError):
        return None
