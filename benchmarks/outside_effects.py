"""Effects of many launches of kernels that other people wrote, as a lab finds them: cold, from disk and from memory.

    python benchmarks/outside_effects.py [--every N] [--check FILE] liger_kernel.ops fla.ops flag_gems.ops

The packages are found as by `outside_packages`, and so are the launches: up to three of each kernel, with dtypes,
switches and block sizes of their own. Which attempts compile is found out first and kept in the temporary folder, by
package and version; it is not part of any time. A launch that takes Triton over ``SECONDS_PER_LAUNCH`` is left out.

``jobs`` is what the notebook's process does for each launch: specialization, source and helpers. ``Triton`` is its own
work up to the optimised TTIR, in this process. The processor time of all processes divided by the cores is the least
that the cold run takes where nothing else runs. With ``--check``, the effects are written to a file, or compared with
it if it is there, such as of an earlier revision.
"""

# ruff: noqa: BLE001 - whatever a foreign package raises leaves its launch out

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import triton
from outside_launches import attempts
from outside_packages import launched_kernels, pretend_to_have_a_gpu, time_limit, unwrapped

from kernellab._triton.compiling import raw_module
from kernellab._triton.specialize import Specialization, specialize
from kernellab.compile.cache import COMPILE_WORKER, Compiler
from kernellab.compile.types import CompileJob, compile_job
from kernellab.errors import KernellabError
from kernellab.target import parse_target
from kernellab.workers.worker import Pool

RESULT = Path(__file__).parent / "results" / "outside_effects.txt"
TARGET = parse_target("cuda:90")
LAUNCHES_PER_KERNEL, MOST_REFUSED = 3, 12
SECONDS_PER_LAUNCH = 5
SAMPLE = 8  # every which launch is timed in this process alone


def special_of(function: Any, arguments: dict[str, Any]) -> Specialization:
    return specialize(function, TARGET, (), {**arguments, "sanitize_overflow": False})


def ttir_seconds(function: Any, special: Specialization) -> float:
    """Build the optimised TTIR; return the seconds of this process's CPU."""
    begin = time.process_time()
    module, _, optimised = raw_module(function, special, TARGET)
    optimised(module)
    return time.process_time() - begin


def compiling_attempts(kernel: Any) -> list[int]:
    """Return the numbers of the attempts that compile, each with types or constants of its own."""
    function, numbers, refused, known = unwrapped(kernel), [], 0, set()
    assert function is not None
    for number, arguments in enumerate(attempts(kernel, function)):
        if len(numbers) == LAUNCHES_PER_KERNEL or refused == MOST_REFUSED:
            break
        try:
            with time_limit(SECONDS_PER_LAUNCH):
                special = special_of(function, arguments)
                if (key := repr((special.signature, special.constants))) not in known:
                    known.add(key)
                    ttir_seconds(function, special)
                    numbers.append(number)
        except BaseException:
            refused += 1
    return numbers


def record(package: str, log: Path) -> None:
    """Write which attempts compile, kernel by kernel; one that kills the process stays without any."""
    done = {json.loads(line)[0] for line in log.read_text().splitlines()} if log.exists() else set()
    with log.open("a") as file:
        for name, kernel in launched_kernels(package).items():
            if name in done:
                continue
            start = file.tell()
            file.write(json.dumps([name, []]) + "\n")
            file.flush()
            line = json.dumps([name, compiling_attempts(kernel)]) + "\n"
            file.seek(start)
            file.truncate()
            file.write(line)
            file.flush()


def recorded(package: str) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Yield name, jit function and arguments of each launch of a package that compiles."""
    log = Path(tempfile.gettempdir()) / f"outside-effects-{package}-{triton.__version__}.jsonl"
    complete = log.with_suffix(".complete")
    while not complete.exists():
        command = [sys.executable, __file__, "--record", package, str(log)]
        if not subprocess.run(command, check=False).returncode:
            complete.touch()
    kernels = launched_kernels(package)
    for line in log.read_text().splitlines():
        name, numbers = json.loads(line)
        kernel = kernels.get(name)
        function = unwrapped(kernel)
        for number, arguments in enumerate(attempts(kernel, function) if function is not None and numbers else ()):
            if number in numbers:
                yield f"{name} {number}", function, {**arguments, "sanitize_overflow": False}


def worker_seconds(pool: Pool) -> float:
    """Return the processor time of all workers of a pool."""
    stats = (Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split() for worker in pool.workers)
    return sum(int(stat[11]) + int(stat[12]) for stat in stats) / os.sysconf("SC_CLK_TCK")


def found(compiler: Compiler, jobs: Sequence[Callable[[], CompileJob]]) -> tuple[float, dict[int, Any]]:
    """Return the seconds that the effects of all jobs take, and the answers by position."""
    begin = time.perf_counter()
    answers = dict(compiler.stream_effects(jobs))
    return time.perf_counter() - begin, answers


def plain(answer: Any) -> Any:
    """Return effects, or an error, as data that two revisions can be compared by."""
    if isinstance(answer, KernellabError):
        return f"{type(answer).__name__}: {answer.message}"
    sites = [(s.argument, str(s.kind), s.operation, s.line, s.masked, s.conditional) for s in answer.sites]
    return {"sites": sorted(map(str, sites)), "unknown": sorted(str((u.operation, u.reason)) for u in answer.unknown)}


def checked(path: Path, answers: dict[str, Any]) -> str:
    """Compare with what an earlier revision found, or keep the answers for a later one."""
    if not path.exists():
        path.write_text(json.dumps(answers, indent=0, sort_keys=True))
        return f"kept in {path}"
    before = json.loads(path.read_text())
    common = before.keys() & answers.keys()
    differing = sorted(name for name in common if before[name] != answers[name])
    return f"{len(common) - len(differing)} of {len(common)} equal to an earlier revision's" + "".join(
        f"\n  differs: {name}" for name in differing[:8]
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--check", type=Path)
    parser.add_argument("--record", nargs=2)
    parser.add_argument("packages", nargs="*")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    pretend_to_have_a_gpu()
    if options.record:
        record(options.record[0], Path(options.record[1]))
        return
    launches = [launch for package in options.packages for launch in recorded(package)][:: options.every]
    text = measured(launches, options.check)
    names = {package.partition(".")[0] for package in options.packages}
    found_in = importlib.metadata.packages_distributions()
    versions = sorted(f"{each} {importlib.metadata.version(each)}" for name in names for each in set(found_in[name]))
    text = f"Triton {triton.__version__}, PyTorch {torch.__version__}, {TARGET}; {', '.join(versions)}\n{text}"
    RESULT.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


def measured(launches: Sequence[tuple[str, Any, dict[str, Any]]], check: Path | None) -> str:
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]

    def job(function: Any, arguments: dict[str, Any]) -> CompileJob:
        return compile_job(function, TARGET, (), arguments)

    sample = launches[::SAMPLE]
    triton_ms = [1e3 * ttir_seconds(function, special_of(function, given)) for _, function, given in sample]
    begin = time.process_time()
    for _, function, given in sample:
        job(function, given)
    job_ms = 1e3 * (time.process_time() - begin) / len(sample)
    with tempfile.TemporaryDirectory() as folder:
        pool = Pool(COMPILE_WORKER, cores)
        pool.start()
        pool.wait_ready(60)
        sources = [partial(job, function, given) for _, function, given in launches]
        before = time.process_time(), worker_seconds(pool)
        cold_s, answers = found(Compiler(pool, Path(folder), 300), sources)
        own_s, workers_s = time.process_time() - before[0], worker_seconds(pool) - before[1]
        fresh = Compiler(pool, Path(folder), 300)
        disk_s, again = found(fresh, sources)
        jobs = [source() for source in sources]
        begin = time.perf_counter()
        for each in jobs:
            with contextlib.suppress(KernellabError):
                fresh.effects(each)
        memory_s = time.perf_counter() - begin
        pool.close()
    results = {name: plain(answers[index]) for index, (name, _, _) in enumerate(launches)}
    failed = [answer for answer in answers.values() if isinstance(answer, KernellabError)]
    equal = sum(plain(answers[index]) == plain(again[index]) for index in answers)
    text = (
        f"{len(launches)} launches, {len(failed)} of them failed; {cores} cores, load {load:.1f}\n"
        f"cold {cold_s:.1f} s, from disk {disk_s:.1f} s ({equal} of {len(answers)} equal), "
        f"from memory {memory_s:.2f} s\n"
        f"CPU for each: TTIR {statistics.fmean(triton_ms):.1f} ms (median {statistics.median(triton_ms):.1f}), "
        f"making the job {job_ms:.1f} ms\n"
        f"CPU of the cold run: this process {own_s:.1f} s, workers {workers_s:.1f} s; "
        f"on these cores without other load at least {(own_s + workers_s) / cores:.1f} s\n"
        f"Triton's TTIR alone on these cores: {statistics.fmean(triton_ms) * len(launches) / cores / 1e3:.1f} s\n"
    )
    return text + (f"{checked(check, results)}\n" if check else "")


if __name__ == "__main__":
    main()
