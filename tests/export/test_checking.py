"""What exported modules compare their outputs by: whole numbers, NaN, infinities, complex and empty tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernellab.export.checking import comparison_lines, expected_text, summarize_outputs


def check_of(
    recorded: torch.Tensor, tolerance: float = 1e-5, rounded: tuple[str, ...] = ()
) -> Callable[[torch.Tensor], str]:
    """Return the check of a module that was written when an output held this."""
    text = [
        *expected_text(summarize_outputs({"out": recorded})),
        "def check(outputs):",
        *comparison_lines(tolerance, rounded),
    ]
    namespace: dict[str, Any] = {"torch": torch}
    exec("\n".join(text), namespace)
    return lambda output: str(namespace["check"]({"out": output}))


NAN, INF = float("nan"), float("inf")
LARGE = torch.arange(123_456_789_012, 123_456_789_112)
FLOATS = torch.linspace(-3, 5, 200)


def changed(tensor: torch.Tensor, index: int, value: float) -> torch.Tensor:
    other = tensor.clone()
    other[index] = value
    return other


@pytest.mark.parametrize(
    "output",
    [
        LARGE,
        torch.tensor([2**63 - 1, -(2**63), 7]),
        torch.tensor([True, False, True]),
        changed(FLOATS, 3, NAN),
        changed(changed(FLOATS, 3, INF), 9, -INF),
        torch.full((40,), NAN),
        torch.empty(0),
        torch.empty(3, 0, dtype=torch.int32),
        torch.complex(FLOATS, FLOATS.flip(0)),
        FLOATS.to(torch.float8_e4m3fn),
    ],
)
def test_what_was_recorded_is_right(output: torch.Tensor) -> None:
    assert check_of(output)(output.clone()) == "outputs match those at export"


@pytest.mark.parametrize(
    ("recorded", "output"),
    [
        (LARGE, changed(LARGE, 51, LARGE[51].item() + 1)),  # no sample, and beyond the digits of a float
        (LARGE, LARGE + torch.tensor([1, -1]).repeat(50)),
        (torch.tensor([True, False]), torch.tensor([True, True])),
        (changed(FLOATS, 3, NAN), changed(changed(FLOATS, 3, NAN), 5, NAN)),
        (changed(FLOATS, 3, NAN), changed(FLOATS * 2, 3, NAN)),
        (changed(FLOATS, 3, INF), changed(FLOATS, 3, -INF)),
        (changed(FLOATS, 3, INF), FLOATS),
        (torch.empty(0), torch.empty(2)),
        (torch.empty(3, 0), torch.empty(0, 3)),
        (torch.complex(FLOATS, FLOATS), torch.complex(FLOATS, -FLOATS)),
        (FLOATS, FLOATS + 0.01),
    ],
)
def test_what_differs_is_wrong(recorded: torch.Tensor, output: torch.Tensor) -> None:
    with pytest.raises(AssertionError):
        check_of(recorded)(output)


def test_what_rounding_explains_is_right() -> None:
    assert check_of(FLOATS, tolerance=1e-3)(FLOATS * (1 + 1e-4))


def test_whole_numbers_that_were_rounded_may_be_off_by_one() -> None:
    numbers = torch.arange(1000) * 7
    check = check_of(numbers, rounded=("out",))
    assert check(changed(numbers, 0, 1))
    with pytest.raises(AssertionError):
        check(changed(numbers, 0, 2))
    with pytest.raises(AssertionError):
        check(numbers + 1)
    with pytest.raises(AssertionError):
        check(numbers[:-1])
