"""Classes are written as text without asking them whether something is an instance."""

from __future__ import annotations

from typing import Protocol

from kernellab._triton.class_text import class_text


class Sized(Protocol):
    size: int = 3


def test_a_protocol_is_written_though_it_refuses_isinstance() -> None:
    assert any("size = 3" in line for line in class_text(Sized).lines)
