"""The gate of the command line: ``kernellab bench FILE.py::KERNEL --against REV``."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kernellab.cli.kept import Answer
from kernellab.cli.kernel_file import FileLaunch, kernel_file, launch_of, launch_of_file
from kernellab.errors import SourceError, UsageError, first_line
from kernellab.settings import step_summary_path
from kernellab.upgrade.gating import BUDGET_S, MARGIN
from kernellab.upgrade.revisions import EarlierFile, earlier_file, importing_earlier
from kernellab.views import data as as_data
from kernellab.workers.forks_and_interrupts import import_uninterrupted

if TYPE_CHECKING:
    from types import ModuleType

    from kernellab.lab import Lab

_OF_GATE = ("gate", "budget", "summary", "step_summary", "junit", "scheduler")
_CONNECT_S = 10
_OF_SWEEP = {"over": "--size NAME=V says the one size to compare", "versus": "--against names the other side"}


def require_no_gate_options(args: Namespace) -> None:
    """Raise where an option of the gate is given without ``--against``.

    Raises:
        UsageError: one is.
    """
    for name in _OF_GATE:
        value = getattr(args, name)
        if value is not None and value is not False:  # a gate of 0 % is one
            raise UsageError(f"--{name.replace('_', '-')} belongs to --against; say what to compare with.")


def gate_command(lab: Lab, args: Namespace) -> Answer:
    """Compare a launch with that of an earlier revision of its file; the exit status is that of the verdict."""
    from kernellab.views.cards.upgrade import gate_card, write_gate

    for name, advice in _OF_SWEEP.items():
        if getattr(args, name):
            raise UsageError(f"--{name} cannot be used with --against: {advice}.")
    if args.rounds is not None:
        raise UsageError("--rounds cannot be used with --against, which times until it can decide: --budget SECONDS.")
    step_summary = step_summary_path() if args.step_summary else None
    later = launch_of(lab, args)
    with (
        earlier_file(later.file.path, args.against) as earlier,
        _client_of(args.scheduler, later.file.module) as client,
    ):
        result = lab.gate(
            later.kernel,
            later.grid,
            *later.args,
            against=_earlier_launch(lab, args, later, earlier),
            margin=MARGIN if args.gate is None else args.gate,
            budget_s=BUDGET_S if args.budget is None else args.budget,
            timeout_s=args.timeout,
            check=args.check,
            executor=client,
            names=(f"{earlier.kernel or later.file.name} of {earlier.label}", later.file.name),
            **later.named,
        )
    write_gate(result, str(later.file.path), args.summary, args.junit, step_summary)
    data = {"kernel": later.file.name, "file": str(later.file.path), "target": str(lab.target)}
    return Answer({**data, **as_data.gate_data(result)}, lambda: gate_card(result).text(), status=result.status)


def _earlier_launch(lab: Lab, args: Namespace, later: FileLaunch, earlier: EarlierFile) -> tuple[Any, Any, Any]:
    """The earlier kernel, its grid and its arguments by name; a file without ``arguments`` is launched as the later."""
    with importing_earlier(earlier), _errors_of(earlier):
        file = kernel_file(f"{earlier.path}::{earlier.kernel or later.file.name}")
        if file.arguments is None and file.exported is None:
            return file.kernel, None, {}
        launch = launch_of_file(lab, file, args)
    return launch.kernel, launch.grid, launch.by_name


@contextmanager
def _client_of(address: str | None, module: ModuleType) -> Iterator[Any]:
    """Yield a dask client that sends the kernel file along to its workers; None without an address.

    Raises:
        UsageError: dask is not installed, or nothing answers at the address.
    """
    if address is None:
        yield None
        return
    try:
        distributed, cloudpickle = map(import_uninterrupted, ("distributed", "cloudpickle"))
    except ImportError as exc:
        raise UsageError("--scheduler needs dask; pip install distributed.") from exc
    try:
        client = distributed.Client(address, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as exc:
        raise UsageError(f"--scheduler {address} does not answer ({first_line(exc)}).") from exc
    cloudpickle.register_pickle_by_value(module)  # its grid may be a function
    with client:
        yield client


@contextmanager
def _errors_of(earlier: EarlierFile) -> Iterator[None]:
    """Make errors of the earlier file name its revision."""
    try:
        yield
    except SourceError as exc:
        raise SourceError(f"{earlier.label}: {exc.message}", place=exc.place, detail=exc.detail) from exc
    except UsageError as exc:
        raise UsageError(f"{earlier.label}: {exc.message}") from exc
