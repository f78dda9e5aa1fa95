"""What the instructions of a stage do: how wide they read and write, and whether they use what the hardware has."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from kernellab.ir.graph import Location, place_of
from kernellab.ir.lines import Frame, Hint, StageLine, lines_with_locations, stage_lines


class InstructionKind(StrEnum):
    """The kind of a notable instruction, in the words of the card."""

    LOAD = "loads"
    STORE = "stores"
    ASYNC_COPY = "cp.async"
    BULK_COPY = "TMA"
    TENSOR = "tensor"
    ATOMIC = "atomic"
    BARRIER = "barrier"
    SHARED = "shared"
    SPILL = "spill"
    OTHER = ""


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction by its mnemonic.

    ``bytes`` is what one thread moves by a load, a store or an asynchronous copy of global memory; 0 for all others.
    ``unit`` names the instructions of a tensor core as its documentation does: ``wgmma``, ``mma``, ``mfma``, ...
    """

    mnemonic: str
    kind: InstructionKind = InstructionKind.OTHER
    bytes: int = 0
    unit: str = ""


@dataclass(frozen=True, slots=True)
class LineProfile:
    """The instructions that a source line became in one stage: how many in all, and each notable one with its count."""

    instructions: int
    notable: tuple[tuple[Instruction, int], ...]

    def of(self, kind: InstructionKind) -> tuple[tuple[Instruction, int], ...]:
        """Return the notable instructions of a kind, each with its count."""
        return tuple((instruction, count) for instruction, count in self.notable if instruction.kind is kind)

    def count(self, kind: InstructionKind) -> int:
        """The number of instructions of a kind."""
        return sum(count for _, count in self.of(kind))


SourceKey = tuple[str | None, int | None]
_Reader = Callable[[str], Instruction | None]

_PTX = re.compile(r"\s*(?:\$?\w+:\s*)?(?:@!?%\w+\s+)?([a-z][\w.:]*)(.*)")
_SASS = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?([A-Z][\w.]*)")
_AMD = re.compile(r"\s+([a-z]+_\w+)(.*)")
_LLVM = re.compile(r"  +(?:%[\w.\"$-]+ = )?(?:(?:tail|musttail|notail) )?([a-z_]+)\b(.*)")
_MLIR = re.compile(r'\s+(?:%[^=]*= )?"?((?:[a-z_]\w*)\.[\w.]+)"?(.*)')
_BITS = re.compile(r"[a-z]+(\d+)$")
_COPIED = re.compile(r"\],\s*(0x[0-9a-fA-F]+|\d+)")
_ASM = re.compile(r'asm (?:sideeffect )?"([^"]*)"')
_ASM_END = re.compile(r";|\\0A|\\09")
_ASM_PART = re.compile(r"\s*(?:@!?\$\w+\s+)?([a-z][\w.:]*)(.*)")
_LLVM_GLOBAL = re.compile(r"(?:load|store) (?:<(\d+) x )?([a-z]+)(\d*)>?")
_AMD_WIDTH = re.compile(r"(?:dwordx(\d)|(dword)|b(\d+)|[us]?(short|byte))")
_AMD_BUFFER = re.compile(r"buffer\.(load|store)\S*?\.(?:v(\d+))?[if](\d+)")

_MATRIX_OF_SASS = {
    **dict.fromkeys(("HGMMA", "IGMMA", "QGMMA", "BGMMA"), "wgmma"),
    **dict.fromkeys(("UTCHMMA", "UTCIMMA", "UTCQMMA", "UTCOMMA", "UTCMXQMMA"), "tcgen05"),
    **dict.fromkeys(("HMMA", "IMMA", "DMMA", "BMMA", "QMMA", "OMMA"), "mma"),
}
_MATRIX_OF_PTX = {"wgmma.mma_async": "wgmma", "mma.sync": "mma", "mma.sp": "mma", "wmma.mma": "wmma"}
_PTX_SPACES = frozenset({"global", "local", "param", "const", "shared", "shared::cta", "shared::cluster"})
_SASS_KINDS = {
    **dict.fromkeys(("LDG", "LD"), InstructionKind.LOAD),
    **dict.fromkeys(("STG", "ST"), InstructionKind.STORE),
    "LDGSTS": InstructionKind.ASYNC_COPY,
    **dict.fromkeys(("UTMALDG", "UTMASTG", "UTMAREDG", "UBLKCP", "UBLKRED"), InstructionKind.BULK_COPY),
    **dict.fromkeys(("ATOM", "ATOMG", "ATOMS", "RED", "REDG", "REDAS"), InstructionKind.ATOMIC),
    **dict.fromkeys(("BAR", "B2R", "BARRIER"), InstructionKind.BARRIER),
    **dict.fromkeys(("LDS", "STS", "LDSM", "STSM"), InstructionKind.SHARED),
    **dict.fromkeys(("LDL", "STL"), InstructionKind.SPILL),
}
SASS_BYTES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
_OF_MLIR = {
    InstructionKind.LOAD: ("tt.load", "tt.descriptor_load", "tt.descriptor_gather", "amdg.buffer_load"),
    InstructionKind.STORE: ("tt.store", "tt.descriptor_store", "tt.descriptor_scatter", "amdg.buffer_store"),
    InstructionKind.ASYNC_COPY: ("ttg.async_copy_global_to_local", "amdg.buffer_load_to_local"),
    InstructionKind.BULK_COPY: ("ttng.async_tma_copy_global_to_local", "ttng.async_tma_copy_local_to_global"),
    InstructionKind.ATOMIC: ("tt.atomic_rmw", "tt.atomic_cas", "tt.descriptor_reduce"),
    InstructionKind.BARRIER: ("ttg.barrier", "gpu.barrier", "ttg.local_barrier"),
    InstructionKind.SHARED: ("ttg.local_load", "ttg.local_store"),
}
_MLIR_KINDS = {name: kind for kind, names in _OF_MLIR.items() for name in names}
_MATRIX_OF_MLIR = {"ttng.warp_group_dot": "wgmma", "ttng.tc_gen5_mma": "tcgen05", "ttng.tc_gen5_mma_scaled": "tcgen05"}


def instruction_of(stage: str, line: str) -> Instruction | None:
    """Return the instruction, or operation, that a line of a stage holds; None of a label, directive or comment."""
    reader = _INSTRUCTION_READERS.get(stage)
    return reader(line) if reader else None


def counts_instructions(stage: str) -> bool:
    """Whether a reader finds the instructions of a stage among its other lines."""
    return stage in _INSTRUCTION_READERS


def profiles_of(stage: str, lines: Iterable[StageLine]) -> Mapping[SourceKey, LineProfile]:
    """Return the notable instructions of a stage by file and line of their source."""
    totals: Counter[SourceKey] = Counter()
    notable: dict[SourceKey, Counter[Instruction]] = {}
    for line in lines:
        instruction = instruction_of(stage, line.text)
        if instruction is not None:
            key = (line.place.file, line.place.line)
            totals[key] += 1
            if instruction.kind is not InstructionKind.OTHER:
                notable.setdefault(key, Counter())[instruction] += 1
    return {key: LineProfile(count, tuple(notable.get(key, {}).items())) for key, count in totals.items()}


_NOT_COUNTED = {InstructionKind.SHARED, InstructionKind.OTHER}


def kind_counts(stage: str, text: str) -> Counter[str]:
    """The notable instructions of a stage by kind, in words (``loads, 16 B wide``, ``wgmma``); ``all`` counts all."""
    counts: Counter[str] = Counter()
    for profile in profiles_of(stage, stage_lines(stage, text)).values():
        counts["all"] += profile.instructions
        for instruction, count in profile.notable:
            if instruction.kind not in _NOT_COUNTED:
                width = f", {instruction.bytes} B wide" if instruction.bytes else ""
                counts[instruction.unit or f"{instruction.kind}{width}"] += count
    return counts


def _of_ptx(line: str) -> Instruction | None:
    match = _PTX.match(line)
    if match is None or (not line.rstrip().endswith((";", "}")) and ";" not in match[2]):
        return None
    return _ptx(match[1], match[2])


def _ptx(mnemonic: str, operands: str) -> Instruction:
    parts = mnemonic.split(".")
    base = parts[0]
    if base in {"ld", "st"}:
        return _ptx_memory(mnemonic, parts)
    if base == "cp":
        return _ptx_copy(mnemonic, operands)
    unit = "tcgen05" if mnemonic.startswith("tcgen05.mma") else _MATRIX_OF_PTX.get(".".join(parts[:2]), "")
    if unit:
        return Instruction(mnemonic, InstructionKind.TENSOR, unit=unit)
    if base in {"atom", "red", "multimem"}:
        return Instruction(mnemonic, InstructionKind.ATOMIC)
    if base in {"bar", "barrier"} or mnemonic.startswith(("mbarrier.try_wait", "mbarrier.test_wait")):
        return Instruction(mnemonic, InstructionKind.BARRIER)
    return Instruction(mnemonic, InstructionKind.SHARED if base in {"ldmatrix", "stmatrix"} else InstructionKind.OTHER)


def _ptx_memory(mnemonic: str, parts: list[str]) -> Instruction:
    space = next((part.partition("::")[0] for part in parts if part in _PTX_SPACES), "global")
    if space == "local":
        return Instruction(mnemonic, InstructionKind.SPILL)
    if space == "shared":
        return Instruction(mnemonic, InstructionKind.SHARED)
    if space != "global":
        return Instruction(mnemonic)
    lanes = next((int(part[1]) for part in parts if part in {"v2", "v4", "v8"}), 1)
    bits = _BITS.match(parts[-1])
    kind = InstructionKind.LOAD if parts[0] == "ld" else InstructionKind.STORE
    return Instruction(mnemonic, kind, lanes * int(bits[1]) // 8 if bits else 0)


def _ptx_copy(mnemonic: str, operands: str) -> Instruction:
    if mnemonic.startswith(("cp.async.bulk.commit", "cp.async.bulk.wait")):
        return Instruction(mnemonic)
    if mnemonic.startswith(("cp.async.bulk", "cp.reduce.async.bulk")):
        return Instruction(mnemonic, InstructionKind.BULK_COPY)
    if mnemonic.startswith(("cp.async.ca", "cp.async.cg")):
        sizes = _COPIED.findall(operands)
        return Instruction(mnemonic, InstructionKind.ASYNC_COPY, int(sizes[0], 0) if sizes else 0)
    return Instruction(mnemonic)


def _of_sass(line: str) -> Instruction | None:
    match = _SASS.match(line)
    return None if match is None else _of_mnemonic(match[1])


@lru_cache(maxsize=1024)
def _of_mnemonic(mnemonic: str) -> Instruction:
    base, *modifiers = mnemonic.split(".")
    if base in _MATRIX_OF_SASS:
        return Instruction(mnemonic, InstructionKind.TENSOR, unit=_MATRIX_OF_SASS[base])
    kind = _SASS_KINDS.get(base, InstructionKind.OTHER)
    if kind in {InstructionKind.LOAD, InstructionKind.STORE, InstructionKind.ASYNC_COPY}:
        return Instruction(mnemonic, kind, next((SASS_BYTES[part] for part in modifiers if part in SASS_BYTES), 4))
    if mnemonic.startswith("SYNCS.PHASECHK"):
        kind = InstructionKind.BARRIER
    return Instruction(mnemonic, kind)


def _of_amd(line: str) -> Instruction | None:
    match = _AMD.match(line)
    if match is None or match[2].startswith(":"):
        return None
    mnemonic, family = match[1], match[1].partition("_")[0]
    if family == "scratch" or "Folded" in match[2]:
        return Instruction(mnemonic, InstructionKind.SPILL)
    if "mfma" in mnemonic or "smfmac" in mnemonic or "wmma" in mnemonic:
        return Instruction(mnemonic, InstructionKind.TENSOR, unit="wmma" if "wmma" in mnemonic else "mfma")
    if "_atomic_" in mnemonic:
        return Instruction(mnemonic, InstructionKind.ATOMIC)
    if mnemonic.startswith("s_barrier"):
        return Instruction(mnemonic, InstructionKind.BARRIER)
    if family == "ds":
        return Instruction(mnemonic, InstructionKind.SHARED)
    if family in {"global", "buffer", "flat"} and ("_load" in mnemonic or "_store" in mnemonic):
        return _amd_memory(mnemonic, match[2])
    return Instruction(mnemonic)


def _amd_memory(mnemonic: str, operands: str) -> Instruction:
    kind = InstructionKind.LOAD if "_load" in mnemonic else InstructionKind.STORE
    if "_lds_" in mnemonic or operands.rstrip().endswith(" lds"):
        kind = InstructionKind.ASYNC_COPY
    width = _AMD_WIDTH.search(mnemonic.partition("load" if "_load" in mnemonic else "store")[2])
    if width is None:
        return Instruction(mnemonic, kind, 4)
    dwords, dword, bits, word = width.groups()
    size = 4 * int(dwords) if dwords else 4 if dword else int(bits) // 8 if bits else 2 if word == "short" else 1
    return Instruction(mnemonic, kind, size)


def _of_llvm(line: str) -> Instruction | None:
    match = _LLVM.match(line)
    if match is None:
        return None
    name, rest = match[1], match[2]
    if name == "call":
        return _llvm_call(rest)
    if name not in {"load", "store"} or "addrspace(1)" not in rest:
        is_shared = name in {"load", "store"} and "addrspace(3)" in rest
        return Instruction(name, InstructionKind.SHARED if is_shared else InstructionKind.OTHER)
    kind = InstructionKind.LOAD if name == "load" else InstructionKind.STORE
    moved = _LLVM_GLOBAL.search(name + rest)
    if moved is None:
        return Instruction(name, kind)
    bits = int(moved[3]) if moved[3] else {"half": 16, "bfloat": 16, "float": 32, "double": 64}.get(moved[2], 0)
    return Instruction(name, kind, int(moved[1] or 1) * bits // 8)


def _llvm_call(rest: str) -> Instruction:
    assembly = _ASM.search(rest)
    if assembly:
        instructions = [
            _ptx(parsed[1], parsed[2]) for part in _ASM_END.split(assembly[1]) if (parsed := _ASM_PART.match(part))
        ]
        return next((part for part in instructions if part.kind is not InstructionKind.OTHER), Instruction("asm"))
    name = rest.partition("@")[2].partition("(")[0]
    buffer = _AMD_BUFFER.search(name)
    if buffer:
        kind = InstructionKind.LOAD if buffer[1] == "load" else InstructionKind.STORE
        return Instruction(name, kind, int(buffer[2] or 1) * int(buffer[3]) // 8)
    if ".barrier" in name:
        return Instruction(name, InstructionKind.BARRIER)
    unit = next((unit for unit in ("mfma", "wmma", "wgmma.mma", "mma.m") if f".{unit}" in name), "")
    if unit:
        return Instruction(name, InstructionKind.TENSOR, unit=unit.partition(".")[0])
    return Instruction(name or "call")


def _of_mlir(line: str) -> Instruction | None:
    match = _MLIR.match(line)
    if match is None:
        return None
    name = match[1]
    if name in _MATRIX_OF_MLIR:
        return Instruction(name, InstructionKind.TENSOR, unit=_MATRIX_OF_MLIR[name])
    if name == "tt.dot" and ("#mma" in match[2] or "parent = #mma" in match[2]):
        return Instruction(name, InstructionKind.TENSOR, unit="mma")
    return Instruction(name, _MLIR_KINDS.get(name, InstructionKind.OTHER))


_INSTRUCTION_READERS: Mapping[str, _Reader] = {
    "ttir": _of_mlir,
    "ttgir": _of_mlir,
    "llir": _of_llvm,
    "ptx": _of_ptx,
    "amdgcn": _of_amd,
    "sass": _of_sass,
}


# What ptxas neither makes by itself nor turns into something else.
_TRACED = frozenset(InstructionKind) - {
    *(InstructionKind.BARRIER, InstructionKind.SHARED, InstructionKind.SPILL, InstructionKind.OTHER)
}
_Key = tuple[Frame | None, InstructionKind | None]  # None stands for all


@lru_cache(maxsize=2)
def sass_lines(sass: str, ptx: str) -> tuple[StageLine, ...]:
    """Return the lines of SASS, each with its place in the source, by the PTX where it is certain."""
    return stage_lines("sass", sass, hint_of_ptx(ptx))


def hint_of_ptx(text: str) -> Hint:
    """Return the innermost frame of each source place, for the instructions of SASS.

    It knows a place where all PTX of that frame, or all of the same kind (loads, stores, ...), has one true place, and
    where the frame has none of that kind, but the whole kernel has it in one place. Of a library line that came from
    several lines of the user's, it does not know for which of them an instruction is.
    """
    hints: dict[_Key, dict[Frame, Location]] = {}
    for line, named, true in lines_with_locations(text):
        instruction = instruction_of("ptx", line) if named.line is not None else None
        if instruction is not None:
            frame, kind, place = (named.file, named.line), instruction.kind, place_of(true)
            for key in ((frame, None), (frame, kind), (None, kind)):
                hints.setdefault(key, {})[place.file, place.line] = place
    certain = {key: next(iter(places.values())) for key, places in hints.items() if len(places) == 1}

    def hint(frame: Frame, line: str) -> Location | None:
        instruction = instruction_of("sass", line)
        kind = instruction.kind if instruction else InstructionKind.OTHER
        if kind in _TRACED:
            return certain.get((frame, kind) if (frame, kind) in hints else (None, kind))
        return certain.get((frame, None)) or certain.get((frame, kind))

    return hint
