"""Mock arguments in place of those of a launch.

The compiler asks of a tensor only its dtype and whether its address is a multiple of 16.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernellab._triton.kernel import JitKernel

_POINTER = re.compile(r"\*k?(\w+)$")
_ALIGNED_ADDRESS = 1 << 12


@dataclass(frozen=True, slots=True)
class MockTensor:
    """Looks like a tensor to the compiler. ``dtype`` is a torch dtype, or Triton's name of one."""

    dtype: Any
    address: int = _ALIGNED_ADDRESS

    def data_ptr(self) -> int:
        """A fake address; only its alignment counts."""
        return self.address


def mock_arguments(arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """The arguments with a mock for each tensor; None if there is a descriptor, which has no mock."""
    mocks = {name: _mock(value) for name, value in arguments.items()}
    return None if any(hasattr(value, "block_shape") for value in mocks.values()) else mocks


def annotated_arguments(kernel: JitKernel) -> dict[str, Any] | None:
    """Arguments for a jit function whose parameters all have Triton type annotations or defaults.

    ``x_ptr: "*fp32"`` gives a mock tensor, ``n: "i32"`` a number; None where a parameter says too little.
    """
    arguments: dict[str, Any] = {}
    for parameter in kernel.params:
        if parameter.has_default:
            arguments[parameter.name] = parameter.default
        elif not parameter.is_constexpr and (pointer := _POINTER.match(parameter.annotation_type)):
            arguments[parameter.name] = MockTensor(pointer[1])
        elif not parameter.is_constexpr and re.match(r"[iu]\d+$", parameter.annotation_type):
            arguments[parameter.name] = 2
        elif not parameter.is_constexpr and re.match(r"(fp|bf)\d+$", parameter.annotation_type):
            arguments[parameter.name] = 1.5
        else:
            return None
    return arguments


def _mock(value: Any) -> Any:
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(map(_mock, value))
    if hasattr(value, "data_ptr") and hasattr(value, "dtype"):
        return MockTensor(value.dtype, _ALIGNED_ADDRESS + value.data_ptr() % 16)
    return value
