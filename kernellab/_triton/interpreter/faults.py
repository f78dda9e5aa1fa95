"""What stops an interpreted program, and how that is put into words."""

from __future__ import annotations

import ast
import linecache
import textwrap
from collections.abc import Callable

from kernellab._triton.interpreter.findings import Program, counted
from kernellab._triton.interpreter.handles import Array
from kernellab._triton.interpreter.places import current_line
from kernellab._triton.interpreter.regions import Region

# Where tl.load and tl.store take the mask by position.
_MASK_POSITION = {"load": 1, "store": 2}


class ProgramStopped(Exception):
    """The base of what ends one program of a launch."""


class DeadlinePassed(ProgramStopped):
    """The time to look for further faults is over."""


class Unsupported(ProgramStopped):
    """The kernel uses what only a GPU can do."""


class CheckFailed(ProgramStopped):
    """A ``tl.device_assert`` or ``tl.assume`` does not hold."""


class AccessFault(ProgramStopped):
    """An access outside the memory of the arguments.

    ``lanes`` is how many of its active lanes are outside; ``describe`` gives the message, from the place of it.
    """

    def __init__(self, argument: str | None, lanes: int, describe: Callable[[tuple[str, int] | None], str]) -> None:
        super().__init__()
        self.argument = argument
        self.lanes = lanes
        self.describe = describe
        self.line = current_line()

    @property
    def message(self) -> str:
        return self.describe(self.line)


def fault_of(
    region: Region,
    strays: Array,
    access: str,
    active: int,
    program: Program,
    *,
    masked: bool,
    inside: Region | None = None,
) -> AccessFault:
    """Return the fault of an access whose lanes at the addresses ``strays`` leave the memory of an argument.

    ``active`` is how many lanes of the access are not masked off; ``inside`` the argument that they hit, if any.
    """
    first = int(strays[0])

    def describe(line: tuple[str, int] | None) -> str:
        size = region.spec.span_bytes // region.spec.itemsize
        extent = f"elements 0 to {size - 1} ({region.spec.span_bytes} bytes)" if size else "no elements"
        where = f" inside {inside.name}" if inside is not None else ""
        return (
            f"{access} of {region.name} out of bounds: element {region.element(first)} (byte {first - region.start})"
            f"{where}; {region.name} has {extent}. Program {program}, {strays.size} of "
            f"{counted(active, 'active lane')}, {_mask_text(line, access, masked)}"
        )

    return AccessFault(region.name, strays.size, describe)


def stray_pointer(address: int, lanes: int, access: str, program: Program) -> AccessFault:
    """Return the fault of an access at an address that comes from no argument."""
    message = (
        f"{access} at address {address:#x}, which lies in no argument of the launch. Program {program}, "
        f"{counted(lanes, 'active lane')}. A tensor whose address the kernel computes or reads must be alive, or an "
        "argument"
    )
    return AccessFault(None, lanes, lambda line: message)


def _mask_text(line: tuple[str, int] | None, access: str, masked: bool) -> str:
    written = None if line is None else _mask_source(*line, access)
    if written is not None:
        return f"mask: {written}"
    return "masked" if masked else "no mask"


def _mask_source(file: str, line: int, access: str) -> str | None:
    """Return the text of the mask in the access at a line, where the source can be read."""
    try:
        tree = ast.parse(textwrap.dedent("".join(linecache.getlines(file))))
    except SyntaxError:
        return None
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr.startswith(access)
        and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    if not calls:
        return None
    call = min(calls, key=lambda node: (node.end_lineno or 0) - node.lineno)
    mask = next((keyword.value for keyword in call.keywords if keyword.arg == "mask"), None)
    position = _MASK_POSITION.get(access)
    if mask is None and position is not None and len(call.args) > position:
        mask = call.args[position]
    return None if mask is None else ast.unparse(_definition(mask, tree, line))


def _definition(mask: ast.expr, tree: ast.Module, line: int) -> ast.expr:
    """Return what a mask given by name was last set to before ``line``, as the text stands."""
    if not isinstance(mask, ast.Name):
        return mask
    assignments = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and node.lineno < line
        and any(isinstance(target, ast.Name) and target.id == mask.id for target in node.targets)
    ]
    return max(assignments, key=lambda node: node.lineno).value if assignments else mask
