"""How an exported dispatch finds a config on devices that are not here: the functions as modules have them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernellab.export import launcher


def decision(target: str, multiprocessors: int, *needs: int | None) -> dict[str, Any]:
    configs = [{"BLOCK": 2**place, "num_warps": 4} for place in range(len(needs))]
    return {
        "target": target,
        "multiprocessors": multiprocessors,
        "configs": configs,
        "shared_bytes": list(needs),
        "choose": lambda n: 1 if n > 100 else 0,
    }


H200, A100, L4 = decision("cuda:90", 132, 1_000, 200_000), decision("cuda:80", 108, 1, 2), decision("cuda:89", 58, 1, 2)
MI300 = decision("hip:gfx942", 304, 1, 2)


def device(name: str, capability: int, multiprocessors: int = 132, shared_bytes: int = 232_448) -> SimpleNamespace:
    major, minor = divmod(capability, 10)
    facts = {"multi_processor_count": multiprocessors, "shared_memory_per_block_optin": shared_bytes}
    return SimpleNamespace(name=name, major=major, minor=minor, **facts)


@pytest.fixture
def tuned_on(monkeypatch: pytest.MonkeyPatch) -> Any:
    def tuned(properties: SimpleNamespace, **decisions: dict[str, Any]) -> None:
        monkeypatch.setattr(launcher, "DECISIONS", decisions)
        monkeypatch.setattr(launcher, "CHOSEN", {})
        monkeypatch.setattr(launcher, "KERNEL", "add_kernel")
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)

    return tuned


def config(n: int, **given: Any) -> Any:
    return launcher.config_for((n,), "cuda:0", given)


def test_a_device_that_was_tuned_has_its_own_decision_without_a_word(
    tuned_on: Any, recwarn: pytest.WarningsRecorder
) -> None:
    tuned_on(device("H200", 90), A100=A100, H200=H200)
    assert config(50) == H200["configs"][0]
    assert config(500) == H200["configs"][1]
    assert not recwarn.list


@pytest.mark.parametrize(
    ("properties", "nearest"),
    [
        (device("H100", 90, 114), "H200"),  # of the same architecture
        (device("RTX 3090", 86, 82), "L4"),  # nearer than 80
        (device("A30", 80, 56), "A100"),
        (device("B200", 100, 148), "H200"),
    ],
)
def test_another_device_takes_the_nearest_with_a_warning(
    tuned_on: Any, properties: SimpleNamespace, nearest: str
) -> None:
    tuned_on(properties, A100=A100, L4=L4, H200=H200, MI300=MI300)
    with pytest.warns(UserWarning, match=f"not tuned on {properties.name}; its configs are those for {nearest}"):
        config(50)


def test_of_equal_architectures_the_number_of_multiprocessors_decides(tuned_on: Any) -> None:
    tuned_on(device("new", 90, 80), H200=H200, H20=decision("cuda:90", 78, 1, 2))
    with pytest.warns(UserWarning, match="for H20,"):
        config(50)


def test_a_choice_is_looked_up_and_warned_of_once(tuned_on: Any, recwarn: pytest.WarningsRecorder) -> None:
    tuned_on(device("H100", 90), H200=H200)
    assert config(50) is config(50)
    assert len(recwarn.list) == 1


def test_a_device_of_another_kind_is_refused_unless_the_caller_gives_all(tuned_on: Any) -> None:
    tuned_on(device("H100", 90), MI300=MI300)
    with pytest.raises(RuntimeError, match=r"tuned on MI300, and H100 is of another kind \(cuda:90\)"):
        config(50)
    with pytest.raises(RuntimeError, match="another kind"):
        config(50, BLOCK=16)
    assert config(50, BLOCK=16, num_warps=4) == {}


def test_what_does_not_fit_the_shared_memory_is_replaced_by_the_largest_that_does(tuned_on: Any) -> None:
    tuned_on(device("H200", 90, shared_bytes=100_000), H200=H200)
    assert config(500) == H200["configs"][0]
    tuned_on(device("H200", 90, shared_bytes=500), H200=H200)
    with pytest.raises(RuntimeError, match="No config of add_kernel fits 500 bytes"):
        config(500)


def test_on_the_cpu_the_first_decision_counts(tuned_on: Any, recwarn: pytest.WarningsRecorder) -> None:
    tuned_on(device("none", 0), MI300=MI300, H200=H200)
    assert launcher.config_for((500,), torch.device("cpu"), {}) == MI300["configs"][1]
    assert not recwarn.list


def test_an_amd_device_is_known_by_its_architecture(tuned_on: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tuned_on(SimpleNamespace(name="MI325", gcnArchName="gfx942:sramecc+", multi_processor_count=304), MI300=MI300)
    monkeypatch.setattr(torch.version, "hip", "6.4")
    with pytest.warns(UserWarning, match="for MI300"):
        assert config(500) == MI300["configs"][1]
