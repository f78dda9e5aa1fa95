from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from kernellab.errors import UsageError
from kernellab.explore.controls import Control, control_of, label_of, powers_around, stops_of_range


@pytest.mark.parametrize(
    ("given", "choices"),
    [
        ([64, ..., 512], (64, 128, 256, 512)),
        ([1, 2, ..., 5], (1, 2, 3, 4, 5)),
        ([16, 32, ..., 128], (16, 32, 64, 128)),
        ([2, 4, ..., 10], (2, 4, 6, 8, 10)),
        ([1, 2, 4, ..., 16], (1, 2, 4, 8, 16)),
        ([8, 7, ..., 5], (8, 7, 6, 5)),
        ([3, 1, 3], (3, 1)),
        ([True, False], (True, False)),
        ([1, True, 1.0], (1, True, 1.0)),
        (range(2, 5), (2, 3, 4)),
    ],
)
def test_lists_become_the_values_of_a_slider(given: Any, choices: tuple[Any, ...]) -> None:
    control = control_of("BLOCK", given)
    assert control is not None
    assert [(type(c), c) for c in control.choices] == [(type(c), c) for c in choices]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "at least one value"),
        ([64, ..., 100], "no factor of two"),
        ([..., 64], "around one"),
        ([64, ...], "around one"),
        ([64, ..., "a"], "around one"),
        ([64, ..., 128, ..., 512], "around one"),
        ([512, ..., 64], "no factor of two"),
        ([1, 2, 3, ..., 10**7], "slider has 1000 at most"),
        ((5, 1), "low <= high"),
    ],
)
def test_what_is_no_range_is_refused_with_what_is_expected(given: Any, words: str) -> None:
    with pytest.raises(UsageError, match=f"^BLOCK is.*{words}"):
        control_of("BLOCK", given)


@pytest.mark.parametrize("given", [3, None, "text", (1, 2, 3), (1.0, 2.0), object()])
def test_a_single_value_is_no_control(given: Any) -> None:
    assert control_of("BLOCK", given) is None


def test_a_narrow_range_has_every_integer_and_a_wide_one_a_logarithmic_scale() -> None:
    assert stops_of_range(3, 7) == (3, 4, 5, 6, 7)
    wide = stops_of_range(1, 10**7)
    assert wide[0] == 1
    assert wide[-1] == 10**7
    assert len(wide) < 120
    assert {1024, 65536} <= set(wide)
    assert all(b / a < 1.5 for a, b in pairwise(wide[4:]))
    assert stops_of_range(-1000, 1000)[0] == -1000


def test_any_integer_of_a_range_can_be_set() -> None:
    control = control_of("n", (1, 10**6))
    assert control is not None
    assert 12_345 not in control.choices
    assert 12_345 in control.with_choice(12_345).choices
    with pytest.raises(UsageError, match="from 1 to 1000000"):
        control.with_choice(0)
    with pytest.raises(UsageError, match="from 1 to 1000000"):
        control.with_choice(True)


def test_a_list_takes_only_its_own_values() -> None:
    control = Control("BLOCK", (64, 128), 64)
    assert control.with_choice(128) is control
    with pytest.raises(UsageError, match="BLOCK is 96; expected one of 64, 128"):
        control.with_choice(96)


def test_powers_around_a_value_stay_within_reason() -> None:
    assert powers_around(64) == (8, 16, 32, 64, 128, 256, 512)
    assert powers_around(2)[0] == 1
    assert powers_around(1 << 16)[-1] == 1 << 16


def test_labels_are_short() -> None:
    assert label_of(4096) == "4096"
    assert label_of(10**7) == "10,000,000"
    assert label_of(True) == "True"
