"""A session that interrupts itself (SIGINT) at given moments of a lab's verbs, and tells what was left of it as JSON.

    python -m tests.workers.interrupted MOMENTS SEED

It belongs into a process session of its own: what it looks for would end the whole process group. After each interrupt
a new kernel has to compile and to compute what it should; after each `Lab.close`, no process, zombie or temporary
folder of the lab may be left.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

import kernellab
from kernellab.errors import KernellabError

_MARK = "KERNELLAB_INTERRUPTED_SESSION"
_GONE_S = 10.0
_SECOND_S = 0.03
_LEAST_S = 0.005
_LATE_S = 1.0
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TARGET = None if DEVICE == "cuda" else "cuda:90"
SHARES = {"start": 1, "first": 1, "compile": 2, "run": 2, "tune": 1, "close": 1}


@triton.jit
def plus(x_ptr, out_ptr, N: tl.constexpr, TIMES: tl.constexpr, BLOCK: tl.constexpr):
    """Write ``x + N``. Compiling it takes the longer, the more ``TIMES`` there are."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x_ptr + offsets)
    for step in tl.static_range(TIMES):
        value = tl.where(value > step, value, value + tl.cumsum(value * 0, 0))
    tl.store(out_ptr + offsets, value + N)


def zeros(count: int) -> torch.Tensor:
    return torch.zeros(count, device=DEVICE)


@dataclass(slots=True)
class Session:
    """What happens to one process, whose labs come and go."""

    chance: random.Random
    lab: kernellab.Lab
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    serial: int = 1000
    took_s: dict[str, float] = field(default_factory=dict)
    handled: int = 0

    def handle(self, *signal_and_frame: object) -> None:
        """Count an interrupt, and raise it as Python's own handler does."""
        self.handled += 1
        raise KeyboardInterrupt

    def start(self) -> None:
        self.lab.start()

    def close(self) -> None:
        self.lab.close()

    def compile(self) -> None:
        self.serial += 1
        self.lab.compile(plus, zeros(64), zeros(64), N=self.serial, TIMES=12, BLOCK=64)

    def first(self) -> None:
        self.compile()

    def run(self) -> None:
        self.serial += 1
        self.lab.run(plus, (300,), zeros(300 * 64), zeros(300 * 64), N=self.serial, TIMES=1, BLOCK=64)

    def tune(self) -> None:
        self.serial += 1
        configs = [triton.Config({"BLOCK": 64 << i}) for i in range(3)]
        self.lab.tune(plus, (1,), zeros(256), zeros(256), configs=configs, N=self.serial, TIMES=4)

    def interrupted(self, verb: str, share: float) -> None:
        """Call a verb, and interrupt it after a share of the time that it takes by itself; now and then twice."""
        call: Callable[[], None] = getattr(self, verb)
        times = 2 if self.chance.random() < 0.25 else 1
        timers = [
            threading.Timer(share * self.took_s[verb] + i * _SECOND_S, os.kill, (os.getpid(), signal.SIGINT))
            for i in range(times)
        ]
        self.counts["interrupts"] += times
        expected = self.handled + times
        begin_s = time.monotonic()
        try:
            with _absorbed():
                for timer in timers:
                    timer.start()
                try:
                    call()
                    self.took_s[verb] = max(_LEAST_S, time.monotonic() - begin_s)  # the machine has other work as well
                    self.counts[f"{verb} went through"] += 1
                except KeyboardInterrupt:
                    self.counts[f"{verb} interrupted"] += 1
        except KeyboardInterrupt:  # one that came while another was being absorbed: that of the verb is caught above
            self.counts["late"] += 1
        except BaseException as exc:  # noqa: BLE001 - whatever else it is, it is told
            self.faults.append(f"{verb} at {share:.3f}: {type(exc).__name__}: {exc}")
        for timer in timers:
            with _absorbed():
                if timer.ident is not None:  # the first may come before the second is started
                    timer.join()
        late_s = time.monotonic() + _LATE_S
        while self.handled < expected and time.monotonic() < late_s:  # two that come together count as one
            with _absorbed():  # a signal that another thread took reaches this one after that was running
                time.sleep(_LEAST_S)
        self.counts["longest_ms"] = max(self.counts["longest_ms"], int(1e3 * (time.monotonic() - begin_s)))

    def is_right(self, after: str) -> None:
        """Compile and launch something new."""
        self.serial += 1
        x, out = torch.arange(64.0, device=DEVICE), zeros(64)
        try:
            text = self.lab.compile(plus, x, out, N=self.serial, TIMES=0, BLOCK=64).ttir
            self.lab.run(plus, (1,), x, out, N=self.serial, TIMES=0, BLOCK=64)
        except KernellabError as exc:
            self.faults.append(f"after {after}: {exc}")
            return
        if f"{self.serial:e}" not in text or not torch.equal(out, x + self.serial):
            self.faults.append(f"after {after}: N={self.serial} gave {text} and {out}")

    def renew(self) -> None:
        """Close the lab for good, look for what is left of it, and open another."""
        self.lab.close()
        end_s = time.monotonic() + _GONE_S
        while (left := _left()) and time.monotonic() < end_s:
            time.sleep(0.02)
        self.faults += [f"left behind: {each}" for each in left]
        self.lab = kernellab.Lab(target=TARGET, store=":memory:")


@contextlib.contextmanager
def _absorbed() -> Iterator[None]:
    """Let an interrupt that comes after its verb be without effect."""
    with contextlib.suppress(KeyboardInterrupt):
        yield


def _left() -> list[str]:
    """Return the processes, zombies, threads and temporary folders that belong to a lab."""
    found = [f"thread {thread.name}" for thread in threading.enumerate() if thread.name == "kernellab-uninterrupted"]
    found += [f"folder {path}" for path in Path(tempfile.gettempdir()).iterdir() if path.name.startswith("kernellab-")]
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, parent = (process / "stat").read_text().rpartition(")")[2].split()[:2]
            marked = f"{_MARK}={os.environ[_MARK]}".encode() in (process / "environ").read_bytes().split(b"\0")
            if process.name != str(os.getpid()) and (marked or int(parent) == os.getpid()):
                found.append(f"process {process.name} ({state}): {(process / 'cmdline').read_bytes()[:80]!r}")
    return found


def session(moments: int, seed: int, folder: Path, **environment: str) -> dict[str, Any]:
    """Return what a new process, in a process session of its own, tells; its temporary files go to ``folder``."""
    variables = {"TMPDIR": str(folder), "KERNELLAB_WORKERS": "2", "KERNELLAB_PROGRESS": "0", **environment}
    done = subprocess.run(
        [sys.executable, "-m", "tests.workers.interrupted", str(moments), str(seed)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        start_new_session=True,
        check=False,
    )
    assert done.returncode == 0, f"status {done.returncode}: {done.stderr}"
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main(moments: int, seed: int) -> None:
    os.environ[_MARK] = str(os.getpid())
    session = Session(random.Random(seed), kernellab.Lab(target=TARGET, store=":memory:"))
    signal.signal(signal.SIGINT, session.handle)
    for verb in ("start", "first", "compile", "run", "tune", "run", "close"):  # what was once called is faster
        begin_s = time.monotonic()
        getattr(session, verb)()
        session.took_s[verb] = time.monotonic() - begin_s
    session.renew()
    descriptors = len(os.listdir("/proc/self/fd"))
    unit = moments / sum(SHARES.values())
    labs = max(1, round(SHARES["start"] * unit))
    for index in range(labs):
        for verb, share in SHARES.items():
            times = round((index + 1) * share * unit / labs) - round(index * share * unit / labs)
            for _ in range(times):
                session.interrupted(verb, 1.1 * session.chance.random())
                session.counts["moments"] += 1
                if verb not in {"start", "close"}:
                    session.is_right(verb)
        session.renew()
    session.lab.close()
    found = {"faults": session.faults, **session.counts, "took_s": session.took_s}
    print(json.dumps({**found, "descriptors": len(os.listdir("/proc/self/fd")) - descriptors}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
