"""How long a kernel stays loaded that was made from its files, and what is asked of Triton for that."""

from __future__ import annotations

import gc
import importlib.util
import re
import sys
import weakref
from contextlib import nullcontext
from dataclasses import dataclass, field
from subprocess import CalledProcessError
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernellab._triton import drivers
from kernellab._triton.drivers import relauncher, unload_with_handle
from kernellab.target import Target


@dataclass(slots=True, weakref_slot=True, eq=False)
class Handle:
    """Looks like Triton's handle of a loaded kernel."""

    module: int | None = 7
    function: int = 11
    packed_metadata: tuple[int, ...] = (4, 1, 0)
    launches: list[tuple[Any, ...]] = field(default_factory=list)

    @property
    def run(self) -> Any:
        return lambda *given, launches=self.launches: launches.append(given)


class UnloadingHandle(Handle):
    """The handle of a version of Triton that unloads what nobody holds."""

    def __del__(self) -> None:
        self.module = None


@pytest.mark.slow
def test_a_launcher_holds_the_kernel_that_it_launches() -> None:
    handle = Handle()
    launches, held = handle.launches, weakref.ref(handle)
    launch = relauncher(handle, (2, 1, 1), (3.5,), 99)
    del handle
    gc.collect()
    assert held() is not None
    launch()
    assert launches == [(2, 1, 1, 99, 11, (4, 1, 0), None, None, None, 3.5)]
    del launch
    assert held() is None


@pytest.mark.parametrize(
    ("handle", "expected"), [(Handle(), [7]), (Handle(module=None), []), (UnloadingHandle(), [])], ids=str
)
def test_what_a_handle_has_loaded_goes_with_it_once(handle: Handle, expected: list[int]) -> None:
    unloaded: list[int] = []
    own = type(handle)(module=handle.module)
    unload_with_handle(own, unloaded.append)
    assert unloaded == []
    del own
    assert unloaded == expected


def test_a_triton_that_was_built_for_other_gpus_serves_all_but_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton.backends.nvidia.driver", None)
    spec = importlib.util.spec_from_file_location("drivers_again", drivers.__file__)
    assert spec is not None
    assert spec.loader is not None
    again = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "drivers_again", again)
    spec.loader.exec_module(again)
    with pytest.raises(ImportError):
        again.use_driver_without_torch(lambda: 0, lambda device: (9, 0))


def test_where_torch_uses_cuda_its_device_is_the_target_and_no_driver_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drivers, "has_cuda_context", lambda: True)
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (10, 3))
    monkeypatch.setattr(drivers, "driver", None)
    assert drivers.gpu_target_of_machine() == Target("cuda", 103, 32)


FAILURES = [RuntimeError("no C compiler"), CalledProcessError(1, "gcc"), ImportError("no module"), OSError("no room")]


class FailingConfig:
    """Triton's configured driver where it does not load."""

    def __init__(self, error: Exception) -> None:
        self.error, self.asked = error, 0

    @property
    def default(self) -> object:
        self.asked += 1
        raise self.error


@pytest.mark.parametrize("error", FAILURES)
def test_a_driver_that_does_not_load_ahead_is_left_to_its_first_use(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    config = FailingConfig(error)
    monkeypatch.setattr(drivers, "driver", config)
    drivers.load_driver()
    assert config.asked == 1


@pytest.mark.parametrize("error", FAILURES)
@pytest.mark.parametrize("has_gpu", [False, True])
def test_where_a_driver_does_not_load_there_is_no_gpu_and_a_warning_says_so_if_the_machine_has_one(
    monkeypatch: pytest.MonkeyPatch, error: Exception, has_gpu: bool
) -> None:
    monkeypatch.setattr(drivers, "driver", FailingConfig(error))
    backend = SimpleNamespace(driver=SimpleNamespace(is_active=lambda: has_gpu))
    monkeypatch.setattr(drivers, "backends", {"nvidia": backend})
    with pytest.warns(UserWarning, match=f"run on the CPU: {re.escape(str(error))}") if has_gpu else nullcontext():
        assert drivers.gpu_target_of_machine() is None
