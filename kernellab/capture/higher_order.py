"""Higher-order operators of torch: launches of Triton kernels are recorded, others such as `torch.cond` are refused."""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import HigherOrderOperator

from kernellab.capture.naming import place_of_user
from kernellab.errors import UsageError

_TRITON_OPERATORS = {"triton_kernel_wrapper_mutation", "triton_kernel_wrapper_functional"}


def run_higher_order(operator: HigherOrderOperator, args: Any, kwargs: Any) -> Any:
    """Run torch's operator that launches a Triton kernel; raise `UsageError` for any other operator."""
    name: str = operator.name()  # type: ignore[no-untyped-call]
    if name in _TRITON_OPERATORS:
        return operator.py_kernels[torch._C.DispatchKey.CompositeExplicitAutograd](*args, **kwargs)
    raise UsageError(
        f"{place_of_user()} calls {name} of torch, which a program cannot record. Write it out with "
        "operations of torch (torch.where, a loop of Python, scaled_dot_product_attention), or call it outside."
    )
