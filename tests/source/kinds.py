"""Values of all kinds that a constexpr can have, each with an expression in a kernel that tells it from another."""

from __future__ import annotations

import itertools
import linecache
import re
from dataclasses import dataclass
from typing import Any

CLASSES = """\
import collections, dataclasses, decimal, enum, fractions, functools, math, operator, pathlib, typing
import numpy as np, torch, triton, triton.language as tl

class Mode(enum.Enum):
    A = 1
    B = 2

class Code(enum.IntEnum):
    A = 1
    B = 2

class Word(enum.StrEnum):
    A = "a"
    B = "b"

class Bits(enum.Flag):
    A = 1
    B = 2

class IntBits(enum.IntFlag):
    A = enum.auto()
    B = enum.auto()

class Planet(enum.Enum):
    A = (1, 2)
    B = (3, 4)
    C = A

    def __init__(self, mass, radius):
        self.mass = mass

    @property
    def heavy(self):
        return self.mass > FEW

    def times(self, n):
        return self.mass * n

    @classmethod
    def best(cls):
        return cls.B

FEW = 2
Called = enum.Enum("Called", "A B")

class Pair(typing.NamedTuple):
    a: int
    b: object = 3

    def sum(self):
        return self.a + self.b

Point = collections.namedtuple("Point", "x y", defaults=[Mode.A])

@dataclasses.dataclass(frozen=True)
class Config:
    block: int = 4
    mode: Mode = Mode.A
    shape: tuple = dataclasses.field(default=(1, 2), compare=False)

    @property
    def double(self):
        return self.block * 2

@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    block: int = 4

@dataclasses.dataclass(frozen=True)
class Derived(Config):
    extra: float = 0.5

@dataclasses.dataclass(frozen=True)
class Checked:
    n: int
    m: int = dataclasses.field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "m", self.n + 1)

class Settings:
    BLOCK = 64
    MODE = Mode.B

class Other:
    BLOCK = 32
    MODE = Mode.A

class Act:
    def __init__(self, k):
        self.k = k

    def __call__(self, n):
        return n * self.k

def twice(n):
    return n * FEW

def thrice(n):
    return twice(n) + n

@triton.jit
def plus(x):
    return x + 1

@triton.jit
def minus(x):
    return x - 1

@triton.constexpr_function
def squared(n):
    return n * n

@triton.constexpr_function
def halved(n):
    return n // 2
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """Two values as expressions, and ``use``, an integer that a kernel computes of one, which it calls ``C``.

    ``REF`` is a global constexpr of the kernel with the first value.
    """

    first: str
    second: str
    use: str = "1 if C == REF else 2"


KINDS = {
    "int": Kind("1", "2"),
    "bool": Kind("True", "False"),
    "float": Kind("1.0", "1.5"),
    "int against bool": Kind("1", "True", "C + 3"),
    "infinity": Kind("math.inf", "-math.inf"),
    "none": Kind("None", "1", "1 if C is None else 2"),
    "str": Kind("'a'", "'b'"),
    "bytes": Kind("b'a'", "b'b'"),
    "complex": Kind("1j", "2j"),
    "range": Kind("range(3)", "range(4)"),
    "ellipsis": Kind("...", "None", "1 if C is None else 2"),
    "tuple": Kind("(1, 2)", "(1, 3)", "C[1]"),
    "nested tuple": Kind("(1, (2, 3))", "(1, (2, 4))", "C[1][1]"),
    "tuple of enum": Kind("(Mode.A, 2)", "(Mode.B, 2)", "1 if C[0] == REF[0] else 2"),
    "frozenset": Kind("frozenset({'a', 'b'})", "frozenset({'a'})", "1 if C == REF else 2"),
    "tl dtype": Kind("tl.float16", "tl.int32"),
    "tl constexpr": Kind("tl.constexpr(3)", "tl.constexpr(4)", "C + 1"),
    "tl pointer type": Kind("tl.pointer_type(tl.int8)", "tl.pointer_type(tl.int16)"),
    "torch dtype": Kind("torch.float16", "torch.float32"),
    "numpy int64": Kind("np.int64(3)", "np.int64(4)", "int(C) + 1"),
    "numpy int8": Kind("np.int8(3)", "np.int8(4)", "int(C) + 1"),
    "numpy float32": Kind("np.float32(0.5)", "np.float32(0.25)", "int(C * 8)"),
    "numpy bool": Kind("np.bool_(True)", "np.bool_(False)", "int(C) + 1"),
    "numpy dtype": Kind("np.dtype('int8')", "np.dtype('int16')"),
    "fraction": Kind("fractions.Fraction(1, 3)", "fractions.Fraction(2, 3)"),
    "decimal": Kind("decimal.Decimal('0.1')", "decimal.Decimal('0.2')"),
    "path": Kind("pathlib.Path('a')", "pathlib.Path('b')"),
    "enum": Kind("Mode.A", "Mode.B"),
    "enum against its value": Kind("Mode.A", "1"),
    "int enum": Kind("Code.A", "Code.B"),
    "int enum as number": Kind("Code.A", "Code.B", "C + 4"),
    "int enum against another": Kind("Code.A", "Mode.A"),
    "str enum": Kind("Word.A", "Word.B"),
    "str enum against str": Kind("Word.A", "'b'"),
    "flag": Kind("Bits.A", "Bits.A | Bits.B"),
    "flag tested": Kind("Bits.A | Bits.B", "Bits.B", "1 if C & REF == REF else 2"),
    "int flag": Kind("IntBits.A | IntBits.B", "IntBits.A"),
    "enum with methods": Kind("Planet.A", "Planet.B", "C.times(5) + (10 if C.heavy else 20)"),
    "enum with class method": Kind("Planet.A", "Planet.B", "1 if C == C.best() else 2"),
    "enum alias": Kind("Planet.C", "Planet.B"),
    "enum made by a call": Kind("Called.A", "Called.B"),
    "enum by identity": Kind("Mode.A", "Mode.B", "1 if C is REF else 2"),
    "enum class": Kind("Mode", "Code", "1 if C == REF else 2"),
    "value of an enum in a constexpr": Kind("Mode.A", "Mode.B", "1 if C.value == REF else 2"),
    "not the value of an enum": Kind("Mode.A", "Mode.B", "1 if C.value == 1 else 2"),
    "type": Kind("Mode.A", "Code.A", "1 if isinstance(C, int) else 2"),
    "enum member of a class": Kind("Mode", "Code", "C.B.value"),
    "named tuple": Kind("Pair(1, 2)", "Pair(1)", "C.b"),
    "named tuple by index": Kind("Pair(1, 2)", "Pair(1)", "C[1]"),
    "named tuple with method": Kind("Pair(1, 2)", "Pair(4)", "C.sum()"),
    "named tuple of enum": Kind("Point(1)", "Point(1, Mode.B)", "1 if C[1] == REF[1] else 2"),
    "dataclass": Kind("Config()", "Config(8)"),
    "dataclass attribute": Kind("Config()", "Config(8)", "C.double + C.shape[1]"),
    "dataclass with enum": Kind("Config()", "Config(4, Mode.B)"),
    "dataclass with slots": Kind("Slotted()", "Slotted(5)"),
    "derived dataclass": Kind("Derived()", "Derived(extra=1.0)"),
    "dataclass with post init": Kind("Checked(1)", "Checked(2)", "C.m"),
    "class of constants": Kind("Settings", "Other", "C.BLOCK"),
    "object with call": Kind("Act(2)", "Act(3)", "C(5)"),
    "function": Kind("twice", "thrice", "C(3)"),
    "lambda": Kind("lambda n: n + 1", "lambda n: n + 2", "C(3)"),
    "partial": Kind("functools.partial(operator.add, 2)", "functools.partial(operator.mul, 2)", "C(3)"),
    "builtin": Kind("len", "max", "1 if C == REF else 2"),
    "jit function": Kind("plus", "minus", "C(3)"),
    "constexpr function": Kind("squared", "halved", "C(6)"),
    "class of an installed module": Kind("fractions.Fraction", "decimal.Decimal"),
}

_NUMBERS = itertools.count(1)
CELLS: dict[str, tuple[int, None, list[str], str]] = {}
"""What linecache holds of the cells, to be put back where another test of the process made torch clear it."""

KERNELS = """
REF = tl.constexpr({first})
G = tl.constexpr({value})
value = {value}

@triton.jit
def by_argument(o, C: tl.constexpr):
    tl.store(o, {use})

@triton.jit
def by_default(o, C: tl.constexpr = G):
    tl.store(o, {use})

@triton.jit
def by_global(o):
    tl.store(o, {of_global})
"""


def cell(kind: Kind, value: str) -> dict[str, Any]:
    """Return the namespace of a notebook whose cell defines the classes, and kernels for one value."""
    of_global = re.sub(r"\bC\b", "G", kind.use)
    text = CLASSES + KERNELS.format(first=kind.first, value=value, use=kind.use, of_global=of_global)
    file = f"In[{next(_NUMBERS)}]"
    linecache.cache[file] = CELLS[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, file, "exec"), namespace)
    return namespace
