"""The effects of kernels that other people wrote: liger-kernel, flash-linear-attention, flag-gems.

Install the packages (without their dependencies) into a folder outside the tree, put it on PYTHONPATH, and name their
modules: ``python benchmarks/outside_packages.py liger_kernel.ops fla.ops flag_gems.ops``. No GPU is needed.

The kernels that a package launches are found by name; their launches are reconstructed from the source: what is
added up in an address is a tensor unless it is called like a size, configs and heuristics give constexprs, and the
rest is guessed in several attempts. A kernel counts as reconstructed when one attempt compiles to TTIR.
"""

# ruff: noqa: BLE001 - whatever a foreign package raises is a row of the table

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import inspect
import json
import logging
import os
import pkgutil
import re
import signal
import subprocess
import sys
import tempfile
import types
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from outside_launches import attempts
from torch._higher_order_ops.triton_kernel_wrap import identify_accessed_tensors
from triton.backends.compiler import GPUTarget
from triton.runtime import JITFunction
from triton.runtime.driver import driver

from kernellab._triton.compiling import raw_module
from kernellab._triton.mlir import flattened_parameters, graph_of_module
from kernellab._triton.specialize import specialize
from kernellab.ir.effects import Effects, effects_of
from kernellab.target import parse_target

RESULT = Path(__file__).parent / "results" / "outside_packages.txt"
SECONDS_PER_ATTEMPT = 20


@dataclass(frozen=True)
class Outcome:
    """What came of one kernel.

    ``error`` is that of the analysis; ``reasons`` are those of unknown effects; ``torch_alone`` are the tensors that
    only PyTorch's analysis reports as changed, ``ours_alone`` those that only ours does.
    """

    kernel: str
    reconstructed: bool
    refusal: str = ""
    error: str = ""
    operations: int = 0
    reasons: tuple[str, ...] = ()
    raw_agrees: bool = True
    torch_alone: tuple[str, ...] = ()
    ours_alone: tuple[str, ...] = ()
    torch_failed: bool = False


class OutOfTime(BaseException):
    """An attempt took too long. No handler for ordinary errors on the way is to take it for one."""


class OfflineDriver:
    """What packages ask of Triton's driver when they are imported."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")


def pretend_to_have_a_gpu() -> None:
    """Answer what packages ask at import about the device, as an H100 would."""
    properties = types.SimpleNamespace(
        name="NVIDIA H100", major=9, minor=0, multi_processor_count=132, total_memory=80 << 30, L2_cache_size=50 << 20
    )
    driver.set_active(OfflineDriver())
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 1
    torch.cuda.current_device = lambda: 0
    torch.cuda.get_device_properties = lambda *_: properties
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.get_device_name = lambda *_: properties.name


def modules_of(package: str) -> Iterator[types.ModuleType]:
    """Yield every module of a package that can be imported here."""
    root = importlib.import_module(package)
    names = [package, *(each.name for each in pkgutil.walk_packages(root.__path__, f"{package}."))]
    for name in names:
        with contextlib.suppress(BaseException):
            yield importlib.import_module(name)


def launched_kernels(package: str) -> dict[str, Any]:
    """Return the kernels of a package that its own code launches, with their decorators, by qualified name."""
    found: dict[str, Any] = {}
    text = []
    for module in modules_of(package):
        with contextlib.suppress(OSError, TypeError):
            text.append(inspect.getsource(module))
        for name, value in vars(module).items():
            function = unwrapped(value)
            if function is not None and function.fn.__module__ == module.__name__:
                found[f"{module.__name__}.{name}"] = value
    launched = set(re.findall(r"\b(\w+)\[", "\n".join(text)))
    return {name: kernel for name, kernel in found.items() if name.rpartition(".")[2] in launched}


def unwrapped(value: Any) -> JITFunction | None:
    """Return the jit function under any decorators, or None for what is no kernel."""
    for _ in range(8):
        if isinstance(value, JITFunction):
            return value
        value = getattr(value, "fn", None)
    return None


def analysed(name: str, kernel: Any) -> Outcome:
    """Reconstruct a launch, build its TTIR, and run the analysis on both forms of it."""
    function = unwrapped(kernel)
    assert function is not None
    target = parse_target("cuda:90")
    refusal = "no attempt"
    for arguments in attempts(kernel, function):
        try:
            with time_limit(SECONDS_PER_ATTEMPT):
                special = specialize(function, target, (), {**arguments, "sanitize_overflow": False})
                module, context, optimised = raw_module(function, special, target)
        except BaseException as error:
            refusal = innermost(error)
            continue
        changed = torch_changes(function, arguments)
        return outcome(name, module, context, optimised, flattened_parameters(special.signature), changed)
    return Outcome(name, reconstructed=False, refusal=refusal)


def torch_changes(function: JITFunction, arguments: dict[str, Any]) -> frozenset[str] | None:
    """Return what PyTorch reports as written, or None where it fails or takes too long."""
    try:
        with time_limit(SECONDS_PER_ATTEMPT):
            accessed = identify_accessed_tensors(function, arguments, {}).read_writes
        return frozenset(each.name for each in accessed.writes)
    except (Exception, OutOfTime):
        return None


def outcome(
    name: str, module: Any, context: Any, optimised: Any, parameters: Any, theirs: frozenset[str] | None
) -> Outcome:
    try:
        raw = effects_of(graph_of_module(module, context, parameters))
        graph = graph_of_module(optimised(module), context, parameters)
        effects = effects_of(graph)
    except Exception as error:
        return Outcome(name, reconstructed=True, error=f"{type(error).__name__}: {error}")
    reasons = tuple(f"{each.operation}: {each.reason.split(' (line')[0]}" for each in effects.unknown)
    return Outcome(
        name,
        reconstructed=True,
        operations=len(graph.operations),
        reasons=reasons,
        raw_agrees=facts(effects) <= facts(raw) or bool(raw.unknown),
        torch_alone=tuple(sorted(theirs - effects.mutated)) if theirs is not None else (),
        ours_alone=tuple(sorted(effects.mutated - theirs)) if theirs is not None else (),
        torch_failed=theirs is None,
    )


def facts(effects: Effects) -> set[tuple[str, str]]:
    return {(site.argument, str(site.kind)) for site in effects.sites}


def innermost(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line for line in str(getattr(error, "message", error)).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1].strip()[:100] if lines else ''}"


@contextlib.contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    def expired(*_: object) -> None:
        raise OutOfTime(f"longer than {seconds} s")

    signal.signal(signal.SIGALRM, expired)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def run_package(package: str, log: Path) -> None:
    """Analyse what the log does not have yet; a kernel that kills the process is left in it as such."""
    pretend_to_have_a_gpu()
    done = {json.loads(line)["kernel"] for line in log.read_text().splitlines()} if log.exists() else set()
    with log.open("a") as file:
        for name, kernel in launched_kernels(package).items():
            if name in done:
                continue
            start = file.tell()
            file.write(json.dumps(asdict(Outcome(name, False, "the compiler ended the process"))) + "\n")
            file.flush()
            line = json.dumps(asdict(analysed(name, kernel))) + "\n"
            file.truncate(start)
            file.seek(start)
            file.write(line)
            file.flush()


def report(package: str, rows: list[dict[str, Any]]) -> str:
    reconstructed = [row for row in rows if row["reconstructed"]]
    unknown = [row for row in reconstructed if row["reasons"]]
    failed = [row for row in reconstructed if row["error"]]
    text = (
        f"{package}: {len(rows)} launched kernels, {len(reconstructed)} reconstructed "
        f"({sum(row['operations'] for row in reconstructed)} operations), {len(failed)} raised, "
        f"{len(unknown)} have unknown effects, "
        f"{sum(not row['raw_agrees'] for row in reconstructed)} differ between raw and optimised TTIR\n"
    )
    text += (
        f"  beside PyTorch's analysis: {sum(bool(row['torch_alone']) for row in reconstructed)} kernels of which it "
        f"reports more tensors as changed, {sum(bool(row['ours_alone']) for row in reconstructed)} of which fewer, "
        f"{sum(row['torch_failed'] for row in reconstructed)} on which it fails or takes over {SECONDS_PER_ATTEMPT} s\n"
    )
    reasons = Counter(reason for row in unknown for reason in set(row["reasons"]))
    text += "".join(f"  {count:4} x unknown: {reason}\n" for reason, count in reasons.most_common(8))
    text += "".join(f"  raised: {row['kernel']}: {row['error'][:120]}\n" for row in failed[:8])
    refusals = Counter(row["refusal"].partition(":")[0] for row in rows if not row["reconstructed"])
    return text + "".join(f"  {count:4} x not reconstructed: {each}\n" for each, count in refusals.most_common(5))


def main() -> None:
    if sys.argv[1] == "--one":
        logging.disable(logging.CRITICAL)
        warnings.simplefilter("ignore")
        run_package(sys.argv[2], Path(sys.argv[3]))
        return
    distributions = importlib.metadata.packages_distributions()
    names = {name for package in sys.argv[1:] for name in distributions.get(package.partition(".")[0], ())}
    versions = [f"{name} {importlib.metadata.version(name)}" for name in sorted(names)]
    text = f"Triton {triton.__version__}, PyTorch {torch.__version__}, target cuda:90; {', '.join(versions)}\n"
    for package in sys.argv[1:]:
        log = Path(tempfile.gettempdir()) / f"outside-{package}.jsonl"
        log.unlink(missing_ok=True)
        environment = {**os.environ, "GEMS_VENDOR": "nvidia"}
        while subprocess.run(
            [sys.executable, __file__, "--one", package, str(log)], env=environment, check=False
        ).returncode:
            sys.stderr.write(f"{package}: the compiler ended the process; going on after that kernel\n")
        text += "\n" + report(package, [json.loads(line) for line in log.read_text().splitlines()])
    RESULT.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
