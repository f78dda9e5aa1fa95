"""What the checks of a CPU run find: planted bugs, and the project's own kernels, which are right."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import triton

from kernellab.errors import OutOfBounds
from kernellab.interpreter.runner import INTERPRET_WORKER, Interpreter
from kernellab.workers.worker import Worker
from tests.interpreter.bugs import OUT_OF_BOUNDS, WARNINGS, Bug
from tests.kernels.cases import all_cases

RESULT = Path(__file__).parent / "results" / "planted_bugs.txt"


def main() -> None:
    interpreter = Interpreter(Worker(INTERPRET_WORKER), timeout_s=120)
    bugs = [(name, found(interpreter, bug)) for name, bug in {**OUT_OF_BOUNDS, **WARNINGS}.items()]
    alarms = {name: false_alarms(interpreter, name) for name in all_cases()}
    interpreter.close()
    lines = [f"triton {triton.__version__}; planted bug, what was found, at its line or not", ""]
    lines += [f"{name:<40}{result}" for name, result in bugs]
    count = sum(not result.startswith("missed") for _, result in bugs)
    lines += [
        "",
        f"found {count} of {len(bugs)}; false alarms on {len(alarms)} correct launches: {sum(alarms.values())}",
        "",
    ]
    RESULT.write_text("\n".join(lines), encoding="utf-8")
    sys.stdout.write("\n".join(lines))


def found(interpreter: Interpreter, bug: Bug) -> str:
    """Return what a launch of a bug says."""
    arguments = bound(bug.kernel, bug.arguments(), {} if bug.block is None else {"BLOCK": bug.block})
    grid = (*bug.grid, 1, 1)[:3]
    try:
        run = interpreter.run(bug.kernel, arguments, grid, uninitialised=frozenset(bug.uninitialised))
    except OutOfBounds as error:
        at_line = error.place is not None and error.place.line == line_of_bug(bug.kernel)
        return f"error, {'its line' if at_line else 'another line'}" if bug.kind == "out_of_bounds" else "missed"
    hits = [f for f in run.findings if f.kind == bug.kind and f.argument == bug.argument]
    if not hits:
        return "missed"
    where = "its line" if hits[0].line == line_of_bug(bug.kernel) else "another line"
    return f"{hits[0].severity} ({hits[0].kind}), {where}"


def false_alarms(interpreter: Interpreter, name: str) -> int:
    case = all_cases()[name]
    arguments = bound(case.kernel, (), {**case.fresh_arguments(), **case.meta})
    return len(interpreter.run(case.kernel, arguments, (*case.grid, 1, 1)[:3]).findings)


def bound(kernel: Any, positional: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    given = {**dict(zip(kernel.arg_names, positional, strict=False)), **named}
    return {name: given[name] for name in kernel.arg_names}


def line_of_bug(kernel: Any) -> int:
    lines, first = inspect.getsourcelines(kernel.fn)
    return first + next(i for i, line in enumerate(lines) if "# bug" in line)


if __name__ == "__main__":
    main()
