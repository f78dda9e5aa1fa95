"""What grows with cells, launches and configs: memory, descriptors, files, and the time of the listing.

Usage: python -m benchmarks.growth [cells|launches|stored|tuning] [SIZE]. Each part runs in a process of its own;
without one, all four run, and the result is written. Each cell has another version of a kernel; the first thousand go
through a shell of IPython, the others through the function that its magic calls, which draws no card. Only the first
is compiled: for the others, links to its files stand in for the answer of a compile worker. Times are not predicted.
Launches on a GPU are those on the stand-in for its driver (`benchmarks.cuda_stand_in`); others run on the CPU.
Configs are timed by the fakes of the tests. Memory is resident, of this process and, with its share of what several
have in common, of all its workers.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
import triton
import triton.language as tl
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from kernellab import Lab
from kernellab.compile.worker import compile_kernel
from kernellab.notebook.cell import CellOptions, run_cell
from kernellab.registry.listing import listing_of_version, search
from kernellab.store import Store
from kernellab.views.bundles import bundle_of

RESULT = Path(__file__).parent / "results" / "growth.txt"
SHELL_CELLS = 1000
SIZES = {"cells": 10_000, "launches": 100_000, "stored": 10_000, "tuning": 10_000}
CELL = """%%triton
@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y + {constant}, mask=mask)

add_kernel[(1,)](x, y, out, 16, BLOCK=16)
"""


class LinkingPool:
    """A pool of compile workers that compiles one kernel, and answers later compiles with links to its files."""

    def __init__(self, pool: Any) -> None:
        self.pool = pool
        self.compiled: Path | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.pool, name)

    def run(self, job: Any, *limits: Any, **more: Any) -> Any:
        if job.handler is not compile_kernel or self.compiled is None:
            answer = self.pool.run(job, *limits, **more)
            if job.handler is compile_kernel:
                self.compiled = Path(tempfile.mkdtemp(prefix="kernellab-growth-"))
                _link_files(job.payload.folder, self.compiled)
            return answer
        _link_files(self.compiled, job.payload.folder)
        return None


def _link_files(source: Path, target: Path) -> None:
    for path in source.iterdir():
        os.link(path, target / path.name)


def memory_mib(everyone: bool) -> float:
    """Return the resident memory of this process, or the proportional one of it and all that it started."""
    if not everyone:
        return _kib_of("/proc/self/status", "VmRSS:") / 1024
    return sum(_kib_of(f"/proc/{pid}/smaps_rollup", "Pss:") for pid in _family(os.getpid())) / 1024


def _kib_of(path: str, label: str) -> int:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:  # it has ended meanwhile
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(label)), 0)


def _family(pid: int) -> Iterator[int]:
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*"):
        for child in (task / "children").read_text().split():
            yield from _family(int(child))


def milliseconds(call: Callable[[], object], times: int = 3) -> float:
    """Return the median time of a call."""
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return median(seconds) * 1e3


def usage() -> dict[str, float]:
    """Return memory and open descriptors, after a collection of garbage."""
    gc.collect()
    return {
        "memory, MiB": memory_mib(False),
        "all processes, MiB": memory_mib(True),
        "descriptors": len(os.listdir("/proc/self/fd")),
    }


def table(title: str, columns: Mapping[str, Mapping[str, float]]) -> str:
    """Return a row per figure and a column per size."""
    names = list(dict.fromkeys(name for column in columns.values() for name in column))
    lines = [title, f"{'':36}{''.join(f'{size:>14}' for size in columns)}"]
    for name in names:
        values = (column[name] for column in columns.values())
        lines.append(f"{name:36}{''.join(f'{value:14,.{0 if value >= 1000 else 2}f}' for value in values)}")
    return "\n".join(lines)


def cells(size: int) -> str:
    """Run cells that each define another version of a kernel."""
    folder = Path(os.environ["KERNELLAB_STORE"])
    shell = InteractiveShell.instance()
    shell.run_cell("%load_ext kernellab").raise_error()
    lab: Lab = shell.magics_manager.registry["TritonMagics"].lab
    lab._pool = lab.compiler.pool = lab._trials.compilers = LinkingPool(lab._pool)  # type: ignore[assignment]
    shell.push({name: torch.ones(16) for name in ("x", "y", "out")})
    columns, seconds = {}, []
    for number in range(1, size + 1):
        start, text = time.perf_counter(), CELL.format(constant=number)
        with capture_output():
            if number <= SHELL_CELLS:
                shell.run_cell(text, store_history=True).raise_error()
            else:
                source = text.partition("\n")[2]
                run_cell(lab, source, shell.user_ns, f"In[{number}]", CellOptions(), lambda value: None)
        seconds.append(time.perf_counter() - start)
        if number in {10**power for power in range(2, 7)} | {size}:
            columns[f"{number:,} cells"] = {**usage(), **cell_figures(lab, folder, seconds[-20:])}
    shell.run_cell("%unload_ext kernellab").raise_error()
    shell.history_manager.end_session()
    shell.history_manager.enabled = False
    return table("cells, each with a new version of a kernel", columns)


def cell_figures(lab: Lab, folder: Path, seconds: list[float]) -> dict[str, float]:
    """Return the sizes of the store and the times of the verbs over it; times are in milliseconds."""
    store = lab.kernels.store
    last = f"add_kernel@{len(store.versions())}"
    files = [path.stat().st_size for path in (folder / "artifacts").rglob("*") if path.is_file()]
    return {
        "one more cell, ms": median(seconds) * 1e3,
        "store, MiB": sum(path.stat().st_size for path in folder.glob("kernellab.sqlite*")) / 2**20,
        "compiled kernels, MiB": sum(files) / 2**20,
        "%triton_ls, ms": milliseconds(lambda: search(store)),
        "%triton_ls --all, ms": milliseconds(lambda: search(store, every=True)),
        "%triton_ls --all with its card, ms": milliseconds(lambda: bundle_of(search(store, every=True))),
        "%triton_ls TEXT, ms": milliseconds(lambda: search(store, "+ 77,")),
        "%triton_ls --status launched, ms": milliseconds(lambda: search(store, status="launched")),
        "listing of one version, ms": milliseconds(lambda: listing_of_version(lab.kernels, last)),
        "one version by its number, ms": milliseconds(lambda: store.find("add_kernel", 1)),
        "the newest version of a name, ms": milliseconds(lambda: store.find("add_kernel")),
        "recorded launches of one, ms": milliseconds(lambda: store.history.launches(1)),
        "completion of names, ms": milliseconds(lambda: complete("%triton_load add_")),
        "opening the store, ms": milliseconds(lambda: Store(folder).close()),
        "opening a lab, ms": milliseconds(lambda: Lab(store=folder).close()),
        "tidying, ms": milliseconds(lab.tidy, 1),
        "tidying again, ms": milliseconds(lab.tidy, 1),
    }


def complete(text: str) -> object:
    return InteractiveShell.instance().complete(text)


@triton.jit
def copy_kernel(x, y, n, BLOCK: tl.constexpr, TAG: tl.constexpr = 0):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offsets, tl.load(x + offsets, mask=offsets < n), mask=offsets < n)


def launches(size: int) -> str:
    """Launch bound kernels: on the CPU, in one recorded cell, for many specializations, and on the stand-in."""
    parts = []
    x, y = torch.zeros(16), torch.zeros(16)
    with Lab(store=":memory:") as lab:
        lab._pool = lab.compiler.pool = lab._trials.compilers = LinkingPool(lab._pool)  # type: ignore[assignment]
        kernel = lab.bind(copy_kernel)
        lab.kernels.add(kernel)
        parts.append(series("launches on the CPU", size, lambda i: kernel[(1,)](x, y, 16, BLOCK=16)))
        title = "launches on the CPU, each on new tensors"
        parts.append(series(title, size // 10, lambda i: kernel[(1,)](torch.zeros(4096), torch.zeros(4096), 16, 16)))
        with lab.launches.recording(undoes=True):
            parts.append(series("launches of one cell", size // 10, lambda i: kernel[(1,)](x, y, 16, BLOCK=16)))
        title = "specializations, each launched once"
        parts.append(series(title, size // 100, lambda i: kernel[(1,)](x, y, 16, 16, TAG=i)))
    from benchmarks.cuda_stand_in import Binding, use_stand_in

    use_stand_in()
    fast = Binding().bind(copy_kernel)
    parts.append(series("launches on the stand-in for a GPU", size, lambda i: fast[(1,)](x, y, 1000, BLOCK=1024)))
    return "\n\n".join(parts)


def series(title: str, size: int, call: Callable[[int], object]) -> str:
    """Return memory and time per call after a hundredth, a tenth and all of some calls."""
    columns, done = {}, 0
    for until in (size // 100, size // 10, size):
        seconds = []
        for number in range(done, until):
            start = time.perf_counter()
            call(number)
            seconds.append(time.perf_counter() - start)
        done = until
        columns[f"{until:,}"] = {**usage(), "per call, us": median(seconds[-1000:]) * 1e6}
    return table(title, columns)


def stored(size: int) -> str:
    """Keep launches of one kernel, each on another grid, and take what they say of it."""
    shell = InteractiveShell.instance()
    shell.run_cell("%load_ext kernellab").raise_error()
    lab: Lab = shell.magics_manager.registry["TritonMagics"].lab
    shell.push({name: torch.ones(16) for name in ("x", "y", "out")})
    with capture_output():
        shell.run_cell(CELL.format(constant=1)).raise_error()
    store, columns, done = lab.kernels.store, {}, 1
    version = store.find("add_kernel")
    assert version is not None
    (first,) = store.history.launches(version.id)
    for until in (size // 100, size // 10, size):
        seconds = []
        for number in range(done, until):
            start = time.perf_counter()
            store.history.add_launch(version.id, replace(first.launch, grid=(1 + number, 1, 1)))
            seconds.append(time.perf_counter() - start)
        done = until
        columns[f"{until:,}"] = {
            **usage(),
            "one more, ms": median(seconds) * 1e3,
            **stored_figures(lab, shell),
        }
    shell.run_cell("%unload_ext kernellab").raise_error()
    shell.history_manager.end_session()
    shell.history_manager.enabled = False
    return table("launches of one kernel in the store, each on another grid", columns)


def stored_figures(lab: Lab, shell: InteractiveShell) -> dict[str, float]:
    """Return what verbs take that read the launches of a kept kernel, in milliseconds."""

    def launch_again() -> None:
        with capture_output():
            shell.run_cell(CELL.format(constant=1)).raise_error()

    return {
        "the same cell again, ms": milliseconds(launch_again),
        "lab.explain, ms": milliseconds(lambda: lab.explain("add_kernel")),
        "lab.predict, ms": milliseconds(lambda: lab.predict("add_kernel")),
        "lab.export, ms": milliseconds(lambda: lab.export("add_kernel", Path(tempfile.mkdtemp(), "kernel.py"))),
        "%triton_ls, ms": milliseconds(lambda: search(lab.kernels.store)),
        "listing of the kernel, ms": milliseconds(lambda: listing_of_version(lab.kernels, "add_kernel")),
    }


def tuning(size: int) -> str:
    """Tune lists of configs on the fakes of the tests, kept in a store, and show them."""
    from tests.tune.fakes import FakeBench, tune

    columns = {}
    for count in (size // 100, size // 10, size):
        configs = [_config(i) for i in range(count)]
        bench = FakeBench({config: 1.0 + i % 997 / 50 for i, config in enumerate(configs)})
        with tempfile.TemporaryDirectory() as folder:
            columns[f"{count:,} configs"] = tuning_figures(configs, bench, Path(folder), tune)
    return table("tunings", columns)


def _config(number: int) -> Any:
    from kernellab.timing.config import Config

    return Config.of({"BLOCK": 16 + number // 4, "num_warps": 1 << number % 4})


def tuning_figures(configs: Any, bench: Any, folder: Path, tune: Callable[..., Any]) -> dict[str, float]:
    """Return what a tuning takes per config at its begin and its end, and what its views take."""
    from kernellab.store.columns import Status
    from kernellab.tune.result import Records, Tuning
    from kernellab.views.figures.tuning import timings_figure

    store = Store(folder)
    version = store.add(_closure(), "digest", "copy")
    records, moments = Records(store.history, version.id, "key", "device"), [time.perf_counter()]

    def record(rows: Any) -> None:
        records.add(rows)
        moments.append(time.perf_counter())

    outcome = tune(configs, bench, record=record)
    steps = [(b - a) * 1e3 for a, b in pairwise(moments)]
    rows = tuple(outcome.rows.values())
    winner = list(outcome.rows).index(outcome.winner)
    result = Tuning("copy", rows, tuple(c.to_triton() for c in outcome.rows), winner, (), 1.0, False)
    assert rows[winner].status is Status.OK
    figures = {
        **usage(),
        "config at the begin, ms": median(steps[:50]),
        "config at the end, ms": median(steps[len(configs) - 50 : len(configs)]),
        "whole tuning, s": moments[-1] - moments[0],
        "store, MiB": sum(path.stat().st_size for path in folder.glob("kernellab.sqlite*")) / 2**20,
        "known rows, ms": milliseconds(records.latest_rows, 1),
        "best of the history, ms": milliseconds(lambda: store.history.best(version.id), 1),
        "%triton_ls, ms": milliseconds(lambda: search(store)),
        "frame, ms": milliseconds(lambda: result.frame, 1),
        "card, ms": milliseconds(lambda: bundle_of(result), 1),
        "plot of times, ms": milliseconds(lambda: timings_figure(result.frame), 1),
    }
    store.close()
    return figures


def _closure() -> Any:
    from kernellab._triton.closure import decorated_closure_of

    return decorated_closure_of(copy_kernel)


PARTS: dict[str, Callable[[int], str]] = {"cells": cells, "launches": launches, "stored": stored, "tuning": tuning}


def main(part: str | None = None, size: str | None = None) -> None:
    if part is not None:
        with tempfile.TemporaryDirectory() as folder:
            os.environ |= {"KERNELLAB_STORE": folder, "IPYTHONDIR": f"{folder}/ipython", "KERNELLAB_PREDICT": "0"}
            sys.stdout.write(PARTS[part](int(size or SIZES[part])) + "\n")
            sys.stdout.flush()
        return
    versions = f"triton {triton.__version__}, torch {torch.__version__}, Python {sys.version.split()[0]}"
    command = [sys.executable, "-m", "benchmarks.growth"]
    results = [subprocess.run([*command, name], check=True, stdout=-1, text=True).stdout for name in PARTS]
    text = "\n".join([versions, "", *results])
    RESULT.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
