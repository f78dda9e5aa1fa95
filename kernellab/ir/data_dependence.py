"""Whether what a kernel touches depends on what its tensors hold, or on the arguments of the launch alone."""

from __future__ import annotations

from kernellab.ir.graph import Graph, Operation
from kernellab.ir.operations import FOREIGN_CODE, MEMORY
from kernellab.ir.uses import Uses

_CONTROL = frozenset({"scf.if", "scf.while", "scf.for", "cf.cond_br", "tt.assert"})


def depends_on_data(graph: Graph) -> bool:
    """Tell whether loaded values decide about an address, a mask, a branch, the length of a loop or an assertion.

    Where they do not, two launches of the same grid, on arguments of the same sizes and with the same numbers, touch
    the same addresses and end the same way. Code from outside that is not pure may do anything, and an address that is
    made of an integer counts as data.
    """
    if any(operation.name in FOREIGN_CODE and not _is_pure(operation) for operation in graph.operations):
        return True
    uses = Uses(graph)
    deciding = [value for operation in graph.operations for value in _deciding(uses, operation)]
    leading = [graph.operations[index] for index in uses.leading_to(deciding)]
    if any(operation.name == "tt.int_to_ptr" or operation.name in FOREIGN_CODE for operation in leading):
        return True
    return any(operation.name in MEMORY and operation.results for operation in leading)


def _deciding(uses: Uses, operation: Operation) -> list[int]:
    """Return the operands that decide what an operation touches, or what runs."""
    row = MEMORY.get(operation.name)
    if row is not None:
        return [value for place, value in enumerate(operation.operands) if place != row.value]
    return list(uses.deciding(operation)) if operation.name in _CONTROL else []


def _is_pure(operation: Operation) -> bool:
    return dict(operation.attributes).get("pure") == "true"
