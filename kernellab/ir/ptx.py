"""The kernel in a PTX module as data: its parameters, and its instructions in the order of the text.

PTX ISA, https://docs.nvidia.com/cuda/parallel-thread-execution/. Labels and registers that a pair of braces declares,
as inline assembly does, are known inside these braces alone; here they have the number of the braces in their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod

from kernellab.errors import UsageError
from kernellab.ir.graph import Location
from kernellab.ir.lines import lines_with_locations


@dataclass(frozen=True, slots=True)
class Register:
    """A register, predicate or special register by its name: ``%r1``, ``%p2``, ``%tid.x``."""

    name: str


@dataclass(frozen=True, slots=True)
class Symbol:
    """The name of a parameter, of a variable in memory, or of something else that is not a register."""

    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """A constant: an integer, or the bits of a floating-point number."""

    bits: int


@dataclass(frozen=True, slots=True)
class Vector:
    """Operands in braces."""

    members: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Address:
    """An operand in brackets: a base and a constant number of bytes; of a tensor, its coordinates too."""

    base: Register | Symbol | Immediate
    offset_bytes: int = 0
    coordinates: tuple[Operand, ...] = ()


Operand = Register | Symbol | Immediate | Vector | Address


def members_of(operand: Operand) -> tuple[Operand, ...]:
    """Return the operands that an operand in braces holds; of any other, itself."""
    return operand.members if isinstance(operand, Vector) else (operand,)


@dataclass(frozen=True, slots=True, eq=False)
class PtxInstruction:
    """One instruction: its name in parts (``ld.global.v4.b32`` gives four) and its operands as they are written.

    ``guard`` is the predicate under which it is executed, ``negated`` says that this is when it is false. ``block`` is
    the index of its straight run of instructions: a label begins one, a branch or return ends one.
    """

    parts: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Register | None
    negated: bool
    location: Location
    block: int

    @property
    def name(self) -> str:
        """The first part, such as ``ld``."""
        return self.parts[0]

    @property
    def opcode(self) -> str:
        """All parts, such as ``ld.global.v4.b32``."""
        return ".".join(self.parts)

    @property
    def type(self) -> str:
        """The type that it computes in: the last part, such as ``b32``."""
        return self.parts[-1]


@dataclass(frozen=True, slots=True)
class PtxParameter:
    """A parameter of a kernel: the size of its type and, of an array of bytes, that of the array."""

    name: str
    size_bytes: int
    is_pointer: bool


@dataclass(frozen=True, slots=True, eq=False)
class PtxKernel:
    """A kernel: ``blocks`` are its straight runs of instructions, ``labels`` the block that each label begins.

    ``threads`` is how many threads a program has, ``variables`` the static variables in shared memory with their sizes.
    Functions of the module that it calls are not part of it.
    """

    name: str
    parameters: tuple[PtxParameter, ...]
    blocks: tuple[tuple[PtxInstruction, ...], ...]
    labels: dict[str, int]
    threads: int
    variables: tuple[tuple[str, int], ...] = ()

    @property
    def instructions(self) -> Iterator[PtxInstruction]:
        """All instructions in the order of the text."""
        return (instruction for block in self.blocks for instruction in block)


_KERNELS_KEPT = 64
_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.([a-z]+)(\d+)\s+(.*?)([\w$]+)(?:\[(\d+)\])?,?\s*$")
_THREADS = re.compile(r"\.(?:req|max)ntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")
_SHARED = re.compile(r"\.shared\s+(?:\.align\s+\d+\s+)?\.[a-z]+(\d+)\s+([\w$]+)(?:\[(\d*)\])?")
_LABEL = re.compile(r"\s*([\w$]+):\s*(.*)")
_STATEMENT = re.compile(r"(?:@(!?)(%?[\w$]+)\s+)?([a-z_]\w*(?:(?:::|\.)\w+)*)\s*(.*)", re.DOTALL)
_DECLARED = re.compile(r"\.reg\s+\.\w+\s+([\w\s,%$]+)")
_NUMBER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|\d+)U?$")
_FLOAT = re.compile(r"0([fFdD])([0-9a-fA-F]+)$")
_ENDS = frozenset({"bra", "ret", "exit", "brx", "trap"})


def ptx_parameters(text: str) -> tuple[PtxParameter, ...]:
    """Return the parameters of the kernel of a PTX module.

    Raises:
        UsageError: there is none.
    """
    return tuple(
        PtxParameter(match[4], int(match[2]) // 8 * int(match[5] or 1), ".ptr" in match[3])
        for match in map(_PARAMETER.search, _entry_header(text)[1].splitlines())
        if match
    )


def _entry_header(text: str) -> tuple[str, str]:
    """Return the name of a module's kernel, and its declaration up to the body."""
    entry = _ENTRY.search(text)
    if entry is None:
        raise UsageError("The PTX has no kernel: expected a function that is an .entry.")
    return entry[1], text[entry.start() :].partition("{")[0]


@lru_cache(_KERNELS_KEPT)
def ptx_kernel(text: str) -> PtxKernel:
    """Return the kernel of a PTX module.

    Raises:
        UsageError: there is none.
    """
    name, header = _entry_header(text)
    extents = _THREADS.search(header)
    threads = prod(int(extent or 1) for extent in extents.groups()) if extents else 1
    sizes = [(match[2], int(match[1]) // 8 * int(match[3] or 0)) for match in _SHARED.finditer(text)]
    reader = _BodyReader()
    reader.read(text, name)
    return PtxKernel(name, ptx_parameters(text), reader.blocks_with_targets(), reader.labels, threads, tuple(sizes))


@dataclass(slots=True)
class _BodyReader:
    """Reads the lines of a kernel's body."""

    blocks: list[list[PtxInstruction]] = field(default_factory=lambda: [[]])
    labels: dict[str, int] = field(default_factory=dict)
    scopes: list[tuple[int, set[str]]] = field(default_factory=list)
    opened: int = 0
    place: Location = field(default_factory=Location)
    branches: list[tuple[int, int, tuple[int, ...]]] = field(default_factory=list)

    def read(self, text: str, kernel: str) -> None:
        """Read what stands between the braces of a kernel."""
        pending = ""
        is_header = is_body = False
        for line, _, true in lines_with_locations(text):
            content = line.split("//")[0].strip()
            is_header = is_header or (".entry" in content and kernel in content)
            if not is_header or not content:
                continue
            if not is_body:
                is_body = content.startswith("{")
                continue
            if content == "}" and not self.scopes:
                return
            self.place = true if true.line else self.place
            pending = f"{pending} {content}".strip()
            pending = self._statements(pending)

    def _statements(self, text: str) -> str:
        """Read the statements that are complete; return the rest of the text."""
        while text:
            label = _LABEL.match(text)
            if text[0] == "{" and not text.startswith("{%"):
                self.opened += 1
                self.scopes.append((self.opened, set()))
                text = text[1:].strip()
            elif text[0] == "}":
                self.scopes.pop()
                text = text[1:].strip()
            elif label:
                self._label(label[1])
                text = label[2].strip()
            elif ";" in text:
                statement, _, text = text.partition(";")
                self._read_statement(statement.strip())
                text = text.strip()
            else:
                return text if not text.startswith(".") else ""
        return ""

    def _label(self, name: str) -> None:
        if self.scopes:
            self.scopes[-1][1].add(name)
        if self.blocks[-1]:
            self.blocks.append([])
        self.labels[self._scoped_name(name)] = len(self.blocks) - 1

    def _scoped_name(self, name: str) -> str:
        scope = next((number for number, names in reversed(self.scopes) if name in names), None)
        return name if scope is None else f"{name}#{scope}"

    def _read_statement(self, text: str) -> None:
        if text.startswith("."):
            declared = _DECLARED.match(text)
            if declared and self.scopes:
                self.scopes[-1][1].update(name.strip() for name in declared[1].split(","))
            return
        match = _STATEMENT.match(text)
        if match is None:
            return
        guard = Register(self._scoped_name(match[2])) if match[2] else None
        parts, block = tuple(match[3].split(".")), len(self.blocks) - 1
        operands = tuple(map(self._operand, split_operands(match[4])))
        instruction = PtxInstruction(parts, operands, guard, match[1] == "!", self.place, block)
        if parts[0] == "bra":
            self.branches.append((block, len(self.blocks[-1]), tuple(number for number, _ in self.scopes)))
        self.blocks[-1].append(instruction)
        if parts[0] in _ENDS:
            self.blocks.append([])

    def _operand(self, text: str) -> Operand:
        if text.startswith("{"):
            return Vector(tuple(map(self._operand, split_operands(text[1:-1]))))
        if text.startswith("["):
            return self._address(text[1:-1].strip())
        if "|" in text:
            return Vector(tuple(self._operand(part.strip()) for part in text.split("|")))
        return self._plain(text)

    def _plain(self, text: str) -> Register | Symbol | Immediate:
        number = _FLOAT.match(text)
        if number:
            return Immediate(int(number[2], 16))
        if _NUMBER.match(text):
            digits = text.removesuffix("U")
            return Immediate(int(digits, 16 if "x" in digits.lower() else 10))
        name = self._scoped_name(text)
        return Register(name) if text.startswith("%") or name != text else Symbol(text)

    def _address(self, text: str) -> Address:
        first, *rest = split_operands(text)
        base, sign, offset = re.match(r"([^+\-\s]+|-\d+)\s*([+-]?)\s*(.*)", first).groups()  # type: ignore[union-attr]
        steps = int(offset.removesuffix("U"), 0) if offset else 0
        return Address(self._plain(base), -steps if sign == "-" else steps, tuple(map(self._operand, rest)))

    def blocks_with_targets(self) -> tuple[tuple[PtxInstruction, ...], ...]:
        """Return the blocks, with labels that stand below their branches in the same braces found, too."""
        for block, place, scopes in self.branches:
            instruction = self.blocks[block][place]
            target = instruction.operands[0]
            if isinstance(target, Symbol):
                inner = (f"{target.name}#{scope}" for scope in reversed(scopes))
                name = next((label for label in inner if label in self.labels), target.name)
                self.blocks[block][place] = replace(instruction, operands=(Symbol(name),))
        return tuple(tuple(block) for block in self.blocks)


def split_operands(text: str) -> list[str]:
    """Split at the commas outside of braces and brackets."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += {"{": 1, "[": 1, "(": 1, "}": -1, "]": -1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts
