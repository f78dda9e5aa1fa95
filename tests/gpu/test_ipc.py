"""What of a GPU launch can be told without a GPU: what can be exported, and how a trial that went wrong is worded."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import kernellab
from kernellab.errors import LaunchError, OutOfBounds, RunError
from kernellab.gpu.ipc import IpcExport
from kernellab.gpu.redzones import Damage
from kernellab.gpu.worker import Ending, Placing, TrialOutcome, trial_error
from kernellab.launch.arguments import CannotExport, ScalarSpec, TensorSpec, TupleSpec
from kernellab.launch.bound_launch import BoundLaunch
from kernellab.settings import read_settings
from tests import samples

N = 300


def launch_on(lab: kernellab.Lab, grid: tuple[int, int, int] = (3, 1, 1)) -> BoundLaunch:
    x = torch.zeros(N)
    launch = BoundLaunch(lab.bind(samples.add_kernel), (), {}, grid)
    launch.compiled = lab.compile(samples.add_kernel, x, x.clone(), x.clone(), N, BLOCK=128)
    launch.arguments, launch.grid = {}, grid
    return launch


def failure(lab: kernellab.Lab, outcome: TrialOutcome, look_closer: Any = lambda: None) -> kernellab.KernellabError:
    exported = IpcExport(0, frozenset({"out_ptr"}), {0: ["x_ptr"], 1: ["y_ptr"], 2: ["out_ptr"]})
    return trial_error(launch_on(lab), look_closer, exported, outcome)


def test_memory_of_the_cpu_stays_behind() -> None:
    with pytest.raises(CannotExport, match="x_ptr lies on cpu"):
        IpcExport(0, None).specs({"x_ptr": torch.zeros(3)})


def test_a_tensor_without_data_is_refused() -> None:
    with pytest.raises(LaunchError, match="x_ptr is a tensor without dense data"):
        IpcExport(0, None).specs({"x_ptr": torch.zeros(3, device="meta")})


def test_numbers_and_tuples_board_as_they_are() -> None:
    specs = dict(IpcExport(0, None).specs({"n": 3, "pair": (True, 2.5), "absent": None, "function": samples.doubled}))
    assert specs["n"] == ScalarSpec(3)
    assert specs["pair"] == TupleSpec((ScalarSpec(True), ScalarSpec(2.5)))
    assert specs["absent"] == specs["function"] == ScalarSpec(None)


def test_a_null_pointer_boards_as_one() -> None:
    class Null:
        dtype = torch.float32

        def data_ptr(self) -> int:
            return 0

    exported = IpcExport(0, None)
    exported.specs({"x_ptr": Null()})
    assert [memory.handle for memory in exported.memories()] == [None]


def test_a_fault_names_the_kernel_its_config_and_the_likely_access(lab: kernellab.Lab) -> None:
    error = failure(
        lab, TrialOutcome(Ending.FAULT, Placing.COPIES, "CUDA error: an illegal memory access was encountered\n...")
    )
    assert type(error) is RunError
    assert error.message.startswith(
        "add_kernel (BLOCK=128, num_warps=4, num_stages=3, num_ctas=1; grid (3, 1, 1)) failed on the GPU: an illegal "
        "memory access was encountered. Most likely it is an access to out_ptr. The notebook's tensors are unchanged."
    )
    assert error.place is not None
    assert "tl.store(out_ptr" in error.place.source_line()


def test_an_assert_of_the_kernel_is_told_and_no_access_blamed(lab: kernellab.Lab) -> None:
    output = "other\ncell.py:3: kernel: block: [0,0,0], thread: [1,0,0] Assertion `too small` failed\n"
    outcome = TrialOutcome(Ending.FAULT, Placing.COPIES, "CUDA error: device-side assert triggered", output=output)
    error = failure(lab, outcome)
    assert "Assertion `too small` failed" in error.message
    assert "Most likely" not in error.message


def test_a_grid_beyond_the_limits_is_told_them(lab: kernellab.Lab) -> None:
    outcome = TrialOutcome(Ending.REFUSED, Placing.COPIES, "Triton Error [CUDA]: invalid argument")
    exported = IpcExport(0, None)
    error = trial_error(launch_on(lab, (1, 70000, 1)), lambda: None, exported, outcome)
    assert isinstance(error, LaunchError)
    assert "a grid has at most 2147483647 x 65535 x 65535 programs" in error.message


def test_a_closer_look_at_a_fault_names_the_access(lab: kernellab.Lab) -> None:
    found = OutOfBounds("load of x_ptr out of bounds.")
    error = failure(
        lab,
        TrialOutcome(Ending.FAULT, Placing.COPIES, "CUDA error: an illegal memory access was encountered"),
        look_closer=lambda: found,
    )
    assert type(error) is OutOfBounds
    assert "encountered. load of x_ptr out of bounds. The notebook's tensors are unchanged." in error.message


def test_memory_without_copies_may_have_changed(lab: kernellab.Lab) -> None:
    error = failure(
        lab, TrialOutcome(Ending.FAULT, Placing.ORIGINALS, "CUDA error: an illegal memory access was encountered")
    )
    assert "which it may have changed" in error.message


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (Damage(2, None, 4, 900, 16), "16 bytes beyond the end of out_ptr, the first of them 4 bytes behind it"),
        (Damage(1, 2, 4, 900, 16), "16 bytes ahead of out_ptr, the last of them 900 bytes before its start"),
        (Damage(0, 0, 0, 0, 0), "the memory of x_ptr changed, which it only reads"),
    ],
)
def test_damage_is_laid_to_an_argument_that_the_kernel_writes(lab: kernellab.Lab, damage: Damage, words: str) -> None:
    error = failure(lab, TrialOutcome(Ending.DAMAGE, Placing.COPIES, damages=(damage,)))
    assert type(error) is OutOfBounds
    assert words in error.message
    assert error.place is not None
    assert "tl.store(out_ptr" in error.place.source_line()


@pytest.mark.parametrize(("text", "isolates"), [("0", False), ("off", False), ("1", True), (None, True)])
def test_isolation_is_a_setting(text: str | None, isolates: bool) -> None:
    environment = {"KERNELLAB_STORE": "/tmp"} | ({} if text is None else {"KERNELLAB_ISOLATE": text})
    assert read_settings(environment).isolate is isolates


def test_progress_is_a_setting() -> None:
    assert read_settings({}).progress
    assert not read_settings({"KERNELLAB_PROGRESS": "0"}).progress


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_storages_at_one_address_the_larger_one_goes_along(monkeypatch: pytest.MonkeyPatch, order: int) -> None:
    monkeypatch.setattr("kernellab.gpu.ipc.IpcExport._check", lambda self, name, tensor: None)  # these lie on the CPU
    whole = torch.zeros(100)
    part = torch.from_dlpack(whole[:10])  # type: ignore[attr-defined]
    exported = IpcExport(0, frozenset())
    specs = dict(exported.specs(dict(list({"whole": whole, "part": part}.items())[::order])))
    assert {spec.storage for spec in specs.values() if isinstance(spec, TensorSpec)} == {0}
    assert [storage.nbytes() for storage in exported.storages] == [400]
