"""What all tests and notebooks share: a store of their own; GPU tests skip where there is no GPU."""

from __future__ import annotations

import gc
import importlib.metadata
import linecache
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator

import pytest

# pytest rewrites what brings a plugin. A lab imports in a thread, and Python 3.11 cannot parse in two at once.
for _finder in sys.meta_path:
    getattr(_finder, "_must_rewrite", set()).discard("kernellab")

# jsonschema, which nbformat needs, would make 38 parsers with it for addresses that no notebook has: 1.2 s.
sys.modules.setdefault("rfc3987_syntax", None)

# There are as many test processes as cores; threads of torch and NumPy, which wait busily, would take time from these.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure(config: pytest.Config) -> None:
    """Keep all that tests persist, also in the kernels and servers they start, out of the user's store.

    Live progress shows on slow machines only, so cells whose output is compared go without it. Predicted times of cards
    and sliders take most of a second each, so tests ask for them. Garbage is collected less often than Python does:
    imports, syntax trees and compiled kernels are many objects that stay.
    """
    gc.disable()
    _hear_interrupts()
    if _runs_notebooks(config):
        os.environ.setdefault("KERNELLAB_PROGRESS", "0")
    else:
        os.environ.setdefault("KERNELLAB_PREDICT", "0")
    if "KERNELLAB_STORE" not in os.environ:
        folder = tempfile.TemporaryDirectory(prefix="kernellab-tests-")
        os.environ["KERNELLAB_STORE"] = folder.name
        config.add_cleanup(folder.cleanup)
        config.add_cleanup(lambda: os.environ.pop("KERNELLAB_STORE"))


def pytest_collection_finish() -> None:
    """Spare what was imported and collected, three quarters of a million objects, in every collection of garbage."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """Collect garbage once; pytest does so five times, and every IPython shell that there was once more."""
    gc.collect()
    gc.freeze()


def pytest_report_header() -> str:
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("triton", "torch", "numpy"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, so that no process is left with one when the others are done."""
    _put_slow_files_first(items)
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not _has_gpu():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no CUDA GPU"))


@pytest.fixture(scope="module", autouse=True)
def _other_modules_are_forgotten(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Forget the cells of other modules' shells, which had the same numbers, and the kernels that they kept.

    A shell makes its namespace ``__main__``, and resetting it takes from that what starts processes, as dask does.
    """
    for name in [name for name in linecache.cache if name.startswith("In[")]:
        del linecache.cache[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELLAB_STORE", str(tmp_path_factory.mktemp("kept")))
        patch.setitem(sys.modules, "__main__", sys.modules["__main__"])
        yield


def _put_slow_files_first(items: list[pytest.Item]) -> None:
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)  # stable: files stay whole and in their order


def _runs_notebooks(config: pytest.Config) -> bool:
    return bool(config.getoption("nbval", False) or config.getoption("nbval_lax", False))


def _has_gpu() -> bool:
    import torch  # takes a second, which only GPU tests should pay for

    return torch.cuda.is_available()


def _hear_interrupts() -> None:
    """Let tests interrupt themselves also in a job that a shell put into the background, where SIGINT is ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
