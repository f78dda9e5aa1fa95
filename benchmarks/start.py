"""How a notebook starts: ``%load_ext kernellab``, the first card, CPU time while idle, and memory of all processes.

Run as ``python -m benchmarks.start [REPETITIONS]``, on a machine without other work: pages that unrelated processes map
as well count less in PSS. Every sample is a process of its own, with an IPython shell. The first card is that of a cell
that imports torch and Triton, defines vector add and launches it, right after ``%load_ext`` or when everything was
loaded; plain Triton runs the same cell, until the launch has ended. Without a GPU, it compiles for the same target by
Triton's own compiler, and runs nothing. In turns, so that both see the same machine. The lab's shell is one of a
notebook (`benchmarks.notebook_shell`): its card shows before the predicted time is there, and is replaced then, which
ends the cell. Both are timed; the goal is for what shows first.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

HAS_GPU = any(Path("/dev").glob("nvidia[0-9]*"))
RESULT = Path(__file__).parent / "results" / ("start-gpu.txt" if HAS_GPU else "start.txt")
REPETITIONS = 7
IDLE_S = 10.0
MOST_LOADING_S = 30.0
GOAL_LOAD_S, GOAL_CARD_S, GOAL_MEMORY = 0.3, 0.3, 1.2

KERNEL = f"""
import torch, triton, triton.language as tl
@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)
x, y, out = (torch.ones(1000, device="{"cuda" if HAS_GPU else "cpu"}") for _ in range(3))
"""
LAUNCH = "add_kernel[(4,)](x, y, out, 1000, BLOCK=256)\n"
CARD = f"%%triton{KERNEL}{LAUNCH}"
COMPILE = """
from triton.backends.compiler import GPUTarget
types = dict(x_ptr="*fp32", y_ptr="*fp32", out_ptr="*fp32", n="i32", BLOCK="constexpr")
attributes = {(place,): [["tt.divisibility", 16]] for place in range(3)}
source = triton.compiler.ASTSource(add_kernel, types, {"BLOCK": 256}, attributes)
compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32))
"""
PLAIN = f"{KERNEL}{LAUNCH}torch.cuda.synchronize()\n" if HAS_GPU else f"{KERNEL}{COMPILE}"


def main() -> None:
    lines = [*figures(*map(int, sys.argv[1:]))]
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


def figures(repetitions: int = REPETITIONS) -> Iterator[str]:
    """Yield a line per figure."""
    device = sample("device()") if HAS_GPU else "no GPU"
    yield f"IPython shells in Python {sys.version.split()[0]}, {len(os.sched_getaffinity(0))} CPU cores, {device}"
    yield f"medians of {repetitions} processes each (worst), goals in brackets"
    cold, warm = (list(_in_turns(repetitions, is_warm=is_warm)) for is_warm in (False, True))
    loads = [lab["load_s"] for _, lab in (*cold, *warm)]
    yield f"%load_ext kernellab                {_seconds(loads)} [at most {GOAL_LOAD_S} s]"
    for label, pairs in (("nothing compiled before", cold), ("compiled before", warm)):
        plain, card = ([sample["first_s"] for sample in side] for side in zip(*pairs, strict=True))
        added = statistics.median(card) - statistics.median(plain)
        yield f"{label}"
        yield f"  plain Triton's first {'launch ' if HAS_GPU else 'compile'}     {_seconds(plain)}"
        yield f"  %load_ext and first card at once {_seconds(card)}, {added:+.2f} s [at most {GOAL_CARD_S:+} s]"
        yield f"    until its cell ends            {_seconds([lab['end_s'] for _, lab in pairs])}"
        yield f"  first card once all is loaded    {_seconds([lab['later_s'] for _, lab in pairs])}"
        yield f"    until its cell ends            {_seconds([lab['later_end_s'] for _, lab in pairs])}"
    idle = [sample(f"idle({IDLE_S!r})", KERNELLAB_STORE=folder) for folder in _folders(repetitions)]
    cpu = [one["cpu_s"] for one in idle]
    yield f"CPU time in {IDLE_S:.0f} s while idle        {_seconds(cpu)}, all processes [0]"
    bare = [sample("memory_of_libraries()") for _ in range(repetitions)]
    base = statistics.median(one["mib"] for one in bare)
    yield f"memory of torch and Triton         {base:6.0f} MiB, PSS of one process without a shell"
    for label, key in (("memory of the lab, idle", "idle_mib"), ("after the first card", "card_mib")):
        mib = statistics.median(one[key] for one in idle)
        ratio = f"{mib / base:.2f} times [at most {GOAL_MEMORY}]"
        yield f"{label:34} {mib:6.0f} MiB, PSS of {idle[0][key.replace('mib', 'processes')]} processes, {ratio}"


def _in_turns(repetitions: int, *, is_warm: bool) -> Iterator[tuple[dict[str, float], dict[str, float]]]:
    """Yield samples of plain Triton and of the lab, from the same folders again where these are warm."""
    for folder in _folders(repetitions):
        where = {"KERNELLAB_STORE": folder, "TRITON_CACHE_DIR": f"{folder}/triton"}
        for _ in range(1 + is_warm):
            pair = sample("plain_first()", **where), sample("card_first()", **where)
        later = sample("card_later()", KERNELLAB_STORE=folder if is_warm else f"{folder}/later")
        yield pair[0], {**pair[1], "later_s": later["first_s"], "later_end_s": later["end_s"]}


def _folders(count: int) -> Iterator[str]:
    for _ in range(count):
        with tempfile.TemporaryDirectory() as folder:
            yield folder


def _seconds(values: list[float]) -> str:
    return f"{statistics.median(values):6.2f} s ({max(values):.2f})"


def sample(call: str, **variables: str) -> Any:
    """Return what a function of this module returns in a new process."""
    code = f"import json, benchmarks.start as start; print(json.dumps(start.{call}))"
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**environment, **variables}, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def device() -> str:
    """Return the name of the GPU, and the versions that count there."""
    import torch
    import triton

    return f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Triton {triton.__version__}"


def _shell() -> Any:
    from benchmarks.notebook_shell import notebook_shell  # not a part of the process that imports libraries alone

    shell = notebook_shell()
    _run(shell, "None")
    return shell


def _run(shell: Any, cell: str) -> tuple[float, float]:
    """Run a cell; return the seconds until it shows its card, if it has one, and until it ends."""
    from benchmarks.notebook_shell import run_cell

    ran = run_cell(shell, cell)
    if cell == CARD:
        assert len(ran.displays) == 1 + ran.updates
        assert "<svg" in ran.displays[-1]["text/html"]
    return ran.shown_s, ran.end_s


def plain_first() -> dict[str, float]:
    """Time a shell's first cell of plain Triton."""
    return {"first_s": _run(_shell(), PLAIN)[1]}


def card_first() -> dict[str, float]:
    """Time ``%load_ext`` and a first ``%%triton`` cell right behind it."""
    shell = _shell()
    load_s = _run(shell, "%load_ext kernellab")[1]
    shown_s, end_s = _run(shell, CARD)
    return {"load_s": load_s, "first_s": load_s + shown_s, "end_s": load_s + end_s}


def card_later() -> dict[str, float]:
    """Time a first ``%%triton`` cell after everything was loaded."""
    shell = _shell()
    _run(shell, "%load_ext kernellab")
    _await_loading()
    shown_s, end_s = _run(shell, CARD)
    return {"first_s": shown_s, "end_s": end_s}


def idle(seconds: float) -> dict[str, float]:
    """Measure the CPU time of all processes of an idle lab, and their memory before and after a first card."""
    shell = _shell()
    _run(shell, "%load_ext kernellab")
    _await_loading()
    before = _cpu_s(os.getpid())
    time.sleep(seconds)
    cpu_s = sum(_cpu_s(os.getpid()).values()) - sum(before.values())
    idle_mib = _memory_mib()
    _run(shell, CARD)
    after = {"card_mib": _memory_mib(), "card_processes": len([*_processes(os.getpid())])}
    return {"cpu_s": cpu_s, "idle_mib": idle_mib, "idle_processes": len(before), **after}


def memory_of_libraries() -> dict[str, float]:
    """Measure a process that has torch and Triton."""
    __import__("torch")
    __import__("triton.language")
    return {"mib": _memory_mib()}


def _await_loading() -> None:
    """Wait until no process of this one has used the CPU for a second."""
    end_s = time.monotonic() + MOST_LOADING_S
    last: Mapping[int, float] = {}
    while (now := _cpu_s(os.getpid())) != last and time.monotonic() < end_s:
        last = now
        time.sleep(1.0)


def _cpu_s(root: int) -> dict[int, float]:
    """Return the CPU seconds of a process and all below it."""
    ticks = os.sysconf("SC_CLK_TCK")
    times = {}
    for pid in _processes(root):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        times[pid] = (int(fields[11]) + int(fields[12])) / ticks
    return times


def _memory_mib() -> float:
    """Return the PSS of this process and all below it."""
    texts = (Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in _processes(os.getpid()))
    return sum(int(line.split()[1]) for text in texts for line in text.splitlines() if line.startswith("Pss:")) / 1024


def _processes(root: int) -> Iterator[int]:
    yield root
    for task in Path(f"/proc/{root}/task").iterdir():
        with suppress(OSError):  # a thread may end meanwhile
            for child in (task / "children").read_text().split():
                yield from _processes(int(child))


if __name__ == "__main__":
    main()
