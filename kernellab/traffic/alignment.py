"""How many of its lowest bits each register is known to have zero, as an assembler can tell from the code alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernellab.ir.ptx import Immediate, Operand, PtxInstruction, PtxKernel, Register, Symbol
from kernellab.traffic.relevance import destination_of, sources_of

_ALL = 64
_SYMBOL_ZEROS = 4  # shared memory is declared with an alignment of 16


def known_zeros(kernel: PtxKernel) -> dict[str, int]:
    """Return the number of low zero bits of each register, whatever way led to it; those without any are left out."""
    made: dict[str, list[PtxInstruction]] = {}
    for each in kernel.instructions:
        destination = destination_of(each)
        for name in _written(destination):
            made.setdefault(name, []).append(each)
    zeros = dict.fromkeys(made, _ALL)
    changed = True
    while changed:
        changed = False
        for name, makers in made.items():
            least = min(_zeros_of_result(each, zeros) for each in makers)
            if least < zeros[name]:
                zeros[name] = least
                changed = True
    return {name: count for name, count in zeros.items() if count}


def _written(destination: Operand | None) -> Sequence[str]:
    if isinstance(destination, Register):
        return (destination.name,)
    members = getattr(destination, "members", ())
    return tuple(member.name for member in members if isinstance(member, Register))


def _zeros_of_operand(operand: Operand, zeros: dict[str, int]) -> int:
    match operand:
        case Immediate(bits):
            return _ALL if bits == 0 else (bits & -bits).bit_length() - 1
        case Register(name):
            return zeros.get(name, 0)
        case Symbol():
            return _SYMBOL_ZEROS
    return 0


def _shift_of(operand: Operand) -> int:
    return operand.bits if isinstance(operand, Immediate) else 0


_RULES: dict[str, Callable[[Sequence[int], Sequence[Operand]], int]] = {
    "mov": lambda zeros, operands: zeros[0],
    "cvt": lambda zeros, operands: zeros[0],
    "cvta": lambda zeros, operands: zeros[0],
    "and": lambda zeros, operands: max(zeros),
    "or": lambda zeros, operands: min(zeros),
    "xor": lambda zeros, operands: min(zeros),
    "add": lambda zeros, operands: min(zeros),
    "sub": lambda zeros, operands: min(zeros),
    "mul": lambda zeros, operands: min(_ALL, zeros[0] + zeros[1]),
    "mad": lambda zeros, operands: min(zeros[0] + zeros[1], zeros[2]),
    "shl": lambda zeros, operands: min(_ALL, zeros[0] + _shift_of(operands[1])),
    "shr": lambda zeros, operands: max(0, zeros[0] - _shift_of(operands[1])) if _shift_of(operands[1]) else 0,
    "selp": lambda zeros, operands: min(zeros[:2]),
}


def _zeros_of_result(instruction: PtxInstruction, zeros: dict[str, int]) -> int:
    rule = _RULES.get(instruction.name)
    if rule is None or instruction.type.startswith(("f", "bf", "pred")) or "hi" in instruction.parts:
        return 0
    operands = sources_of(instruction)
    return rule([_zeros_of_operand(each, zeros) for each in operands], operands)
