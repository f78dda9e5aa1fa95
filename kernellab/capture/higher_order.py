"""Higher-order operators of torch in a capture: launches and decisions by data are recorded, others are refused."""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import HigherOrderOperator

from kernellab.capture.naming import place_of_user
from kernellab.errors import UsageError

_TRITON_OPERATORS = {"triton_kernel_wrapper_mutation", "triton_kernel_wrapper_functional"}


def run_higher_order(operator: HigherOrderOperator, args: Any, kwargs: Any) -> Any:
    """Run an operator of torch that takes functions, step by step, so that its steps are recorded.

    Of a ``cond`` it runs the branch that the data decides, of a ``while_loop`` as many rounds: what decides is read, as
    by an ``if`` of Python.

    Raises:
        UsageError: it is another operator than these and those that launch a Triton kernel.
    """
    name: str = operator.name()  # type: ignore[no-untyped-call]
    if name in _TRITON_OPERATORS:
        return operator.py_kernels[torch._C.DispatchKey.CompositeExplicitAutograd](*args, **kwargs)
    if name in _DECISIONS:
        return _DECISIONS[name](*args, **kwargs)
    raise UsageError(
        f"{place_of_user()} calls {name} of torch, which a program cannot record. Write it out with "
        "operations of torch (a loop of Python, scaled_dot_product_attention), or call it outside."
    )


def _run_branch(pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
    return (true_fn if _is_true(pred) else false_fn)(*operands)


def _run_loop(cond_fn: Any, body_fn: Any, carried_inputs: Any, additional_inputs: Any = ()) -> Any:
    carried = tuple(carried_inputs)
    while _is_true(cond_fn(*carried, *additional_inputs)):
        carried = tuple(body_fn(*carried, *additional_inputs))
    return carried


def _is_true(pred: Any) -> bool:
    """Whether a condition holds; of a tensor it is read by an operation that a recorder knows as a read."""
    return bool(torch.ops.aten._local_scalar_dense.default(pred) if isinstance(pred, torch.Tensor) else pred)


def decides_by_data(function: Any) -> bool:
    """Whether a function of torch is ``cond`` or ``while_loop``."""
    return isinstance(function, HigherOrderOperator) and function.name() in _DECISIONS  # type: ignore[no-untyped-call]


_DECISIONS = {"cond": _run_branch, "while_loop": _run_loop}
