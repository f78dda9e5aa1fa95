"""What a passed trial launch holds for, without a GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.gpu.trial import has_integers_within, integer_ranges, lasting_ranges, trial_record
from kernellab.launch.arguments import ScalarSpec, TensorSpec
from kernellab.store import PassedTrial, Ranges, Store

VIEW = TensorSpec(0, 0, (300,), (1,), "float32", 4)
LIKE: dict[str, Any] = {
    "digest": "abc",
    "device": "NVIDIA H200",
    "driver": "580.1",
    "grid": (3, 1, 1),
    "arguments": (("x_ptr", VIEW), ("n", ScalarSpec(300))),
    "sizes_bytes": [1200],
}


def trial(**changed: Any) -> PassedTrial:
    return trial_record(**{**LIKE, **changed})


def test_the_same_launch_has_the_same_record() -> None:
    assert trial() == trial()


@pytest.mark.parametrize(
    "changed",
    [
        {"digest": "abd"},
        {"device": "NVIDIA H100"},
        {"driver": "580.2"},
        {"grid": (4, 1, 1)},
        {"sizes_bytes": [1196]},
        {"arguments": (("x_ptr", VIEW), ("n", ScalarSpec(301)))},
        {"arguments": (("x_ptr", replace(VIEW, offset_bytes=4)), ("n", ScalarSpec(300)))},
        {"arguments": (("x_ptr", replace(VIEW, strides=(2,))), ("n", ScalarSpec(300)))},
        {"arguments": (("x_ptr", replace(VIEW, storage=1)), ("n", ScalarSpec(300)))},
    ],
    ids=str,
)
def test_a_verdict_counts_for_launches_of_the_same_extents_alone(changed: dict[str, Any]) -> None:
    assert trial(**changed) != trial()


def test_passed_trials_are_found_by_a_later_session(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.trials.add(trial())
    store.trials.add(trial())
    store.close()
    later = Store(tmp_path)
    assert trial() in later.trials
    assert trial(grid=(4, 1, 1)) not in later.trials


@triton.jit
def scatter(x_ptr, where_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    where = tl.load(where_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + where, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


@triton.jit
def sort_step(where_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    where = tl.load(where_ptr + offsets)
    tl.store(where_ptr + where, where)


N = 300


class Launched:
    """A launch of `scatter` on CPU tensors, as the GPU would have it."""

    def __init__(self, lab: kernellab.Lab, where: torch.Tensor, size: int = N) -> None:
        x, self.out = torch.zeros(N), torch.zeros(size)
        self.arguments = {"x_ptr": x, "where_ptr": where, "out_ptr": self.out, "n": N}
        self.compiled = lab.compile(scatter, **self.arguments, BLOCK=128)
        self.specs = [
            ("x_ptr", VIEW),
            ("where_ptr", TensorSpec(1, 0, (N,), (1,), str(where.dtype)[6:], where.element_size())),
            ("out_ptr", TensorSpec(2, 0, (size,), (1,), "float32", 4)),
            ("n", ScalarSpec(N)),
        ]
        self.sizes = (4 * N, where.nbytes, 4 * size)

    def lasting(self, before: Ranges | None = None) -> Ranges | None:
        return lasting_ranges(
            self.compiled.graph, self.compiled.effects, self.arguments, (3, 1, 1), self.specs, self.sizes, before
        )


def integers(low: int, high: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    values = torch.full((N,), low, dtype=dtype)
    values[7] = high
    return values


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.int64], ids=str)
def test_a_trial_holds_for_the_indices_in_between(lab: kernellab.Lab, dtype: torch.dtype) -> None:
    assert Launched(lab, integers(2, 250, dtype)).lasting() == {"where_ptr": (2, 250)}


def test_unsigned_integers_are_kept_as_the_bits_they_are(lab: kernellab.Lab) -> None:
    assert Launched(lab, integers(2, 250, torch.uint8)).lasting() == {"where_ptr": (-6, 2)}
    assert Launched(lab, integers(2, 250, torch.uint8), size=255).lasting() is None  # 255 lies between -6 and 2


def test_a_trial_beside_which_other_indices_lead_outside_says_nothing_of_them(lab: kernellab.Lab) -> None:
    assert Launched(lab, integers(2, N)).lasting() is None
    assert Launched(lab, integers(-1, 9)).lasting() is None


def test_ranges_widen_by_each_trial_that_goes_well(lab: kernellab.Lab) -> None:
    assert Launched(lab, integers(20, 30)).lasting({"where_ptr": (25, 90)}) == {"where_ptr": (20, 90)}
    assert Launched(lab, integers(20, 30)).lasting({"where_ptr": (25, N)}) == {"where_ptr": (20, 30)}


def test_indices_that_the_kernel_writes_itself_are_not_bounded(lab: kernellab.Lab) -> None:
    where = torch.zeros(128, dtype=torch.int32)
    arguments = {"where_ptr": where, "out_ptr": where, "n": 128}
    compiled = lab.compile(sort_step, **arguments, BLOCK=128)
    view = TensorSpec(0, 0, (128,), (1,), "int32", 4)
    specs = [("where_ptr", view), ("out_ptr", view), ("n", ScalarSpec(128))]
    assert lasting_ranges(compiled.graph, compiled.effects, arguments, (1, 1, 1), specs, (512,), None) is None


def test_what_a_view_leaves_out_counts_between_its_elements_and_not_outside() -> None:
    values = torch.arange(10, dtype=torch.int32)
    assert integer_ranges({"x": values[2:9:3]}, ["x"]) == {"x": (2, 8)}
    assert integer_ranges({"x": (values, values[3:5])}, ["x[1]"]) == {"x[1]": (3, 4)}
    assert integer_ranges({"x": values.bool()}, ["x"]) == {"x": (0, 1)}
    assert integer_ranges({"x": values[:0]}, ["x"]) is None
    assert integer_ranges({"x": values.float()}, ["x"]) is None


def test_values_lie_within_ranges_that_hold_all_of_them() -> None:
    given = {"x": torch.tensor([3, 5]), "y": torch.tensor([0])}
    assert has_integers_within({"x": (3, 5), "y": (-1, 1)}, given)
    assert not has_integers_within({"x": (3, 4)}, given)
    assert not has_integers_within({"x": (4, 5), "y": (-1, 1)}, given)
    assert not has_integers_within({"z": (0, 9)}, given)


def test_ranges_are_found_by_a_later_session_and_replaced(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.trials.add_within(trial(), {"where_ptr": (2, 250)})
    store.trials.add_within(trial(), {"where_ptr": (-(2**63), 2**63 - 1)})
    store.close()
    later = Store(tmp_path)
    assert later.trials.ranges_of(trial()) == {"where_ptr": (-(2**63), 2**63 - 1)}
    assert later.trials.ranges_of(trial(grid=(4, 1, 1))) is None
    assert trial() not in later.trials


@pytest.mark.parametrize("text", ["", "[]", '{"a":[1]}', '{"a":[1,2,3]}', '{"a":["1","2"]}', '{"a":[1,2.5]}', "{"])
def test_ranges_that_cannot_be_read_hold_for_nothing(tmp_path: Path, text: str) -> None:
    store = Store(tmp_path)
    store.trials.add_within(trial(), {"where_ptr": (2, 250)})
    store.database.write(lambda cursor: cursor.execute("UPDATE bounded_trials SET ranges = ?", (text,)))
    with pytest.warns(UserWarning, match="cannot be read"):
        assert store.trials.ranges_of(trial()) is None
