"""An experiment: what a launch takes where the memory accesses of one line cost nothing, beside what samples say.

Usage: python -m benchmarks.what_if [NAME ...]; needs a CUDA GPU. For each planted pair whose fault is in a line, each
line with accesses to global memory gets a variant of the TTIR in which these are switched off by a mask that no thread
passes, and that the compiler cannot know: addresses, registers and schedule stay. The variants are timed in turns with
the original. What saves most time is held against the marked line, as is the line with the most samples.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
import triton

import kernellab
from benchmarks.planted import PAIRS, WITHOUT_LINE
from kernellab.errors import KernellabError
from tests.explain.planted import KernelCall, Planted

RESULT = Path(__file__).parent / "results" / "what_if.txt"
_ROUNDS = 15
_ALIKE = 0.25  # how far the registers of a variant may be from those of the original
_LOC = re.compile(r"^(#loc\d*) = loc\((.*)\)$", re.MULTILINE)
_ACCESS = re.compile(
    r"^(?P<begin>\s*(?:%\S+ = )?tt\.(?P<kind>load|store|atomic_rmw) )(?P<operands>[^:{]*?)(?P<rest>(?: \{.*?\})? : )"
    r"(?P<type>.*) loc\((?P<loc>#loc\d*)\)$"
)


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The times in us of a launch and of its variants by line, registers beside them, and the samples by line."""

    name: str
    marked: tuple[int, ...]
    whole_us: float
    registers: int
    without: Mapping[int, tuple[float, int]]
    samples: Mapping[int, float]

    @property
    def by_time(self) -> int | None:
        """The line whose accesses cost most; None where none saves 5 % in a comparable variant."""
        saved = {
            line: self.whole_us - us
            for line, (us, registers) in self.without.items()
            if abs(registers - self.registers) <= _ALIKE * self.registers
        }
        line = max(saved, key=lambda each: saved[each], default=None)
        return None if line is None or saved[line] < 0.05 * self.whole_us else line

    @property
    def by_samples(self) -> int | None:
        """The line with the most samples."""
        return max(self.samples, key=lambda line: self.samples[line], default=None)

    @property
    def text(self) -> str:
        """The row of the table."""
        said = ", ".join(
            f"{line}: {1 - us / self.whole_us:.0%} ({registers} registers)"
            for line, (us, registers) in sorted(self.without.items())
        )
        right = [("right" if line in self.marked else f"{line}?") for line in (self.by_time, self.by_samples)]
        return f"{self.name:<38}{self.whole_us:9,.1f} us  what if: {right[0]:<7}samples: {right[1]:<7}without {said}"


def lines_of(ttir: str, file: str) -> Mapping[str, int]:
    """Return the line of a file for each location of a module that has one."""
    known = dict(_LOC.findall(ttir))

    def line(text: str, depth: int = 0) -> int | None:
        direct = re.search(r'"([^"]+)":(\d+):\d+', text)
        if direct is not None:
            return int(direct[2]) if direct[1] == file else None
        named = (known.get(name, "") for name in re.findall(r"#loc\d*", text))
        return next((found for each in named if depth < 9 and (found := line(each, depth + 1)) is not None), None)

    return {name: found for name, text in known.items() if (found := line(text)) is not None}


def without_line(ttir: str, line: int, lines: Mapping[str, int]) -> str:
    """Return a module in which no thread makes the accesses of a line."""
    found, count = [], 0
    for text in ttir.splitlines():
        match = _ACCESS.match(text)
        if match is not None and lines.get(match["loc"]) == line:
            count += 1
            found += switched_off(match, count)
        else:
            found.append(text)
        if text.lstrip().startswith("tt.func public"):
            found += _never(text)
    return "\n".join(found) + "\n"


def _never(function: str) -> Iterator[str]:
    """Yield what gives ``%what_never``, false as long as the first pointer is not null."""
    pointer = re.search(r"(%\w+): (!tt\.ptr<\w+>)", function)
    assert pointer is not None
    yield f"%what_at = tt.ptr_to_int {pointer[1]} : {pointer[2]} -> i64"
    yield "%what_null = arith.constant 0 : i64"
    yield "%what_never = arith.cmpi eq, %what_at, %what_null : i64"


def switched_off(match: re.Match[str], number: int) -> Iterator[str]:
    """Yield an access behind a mask that nobody passes, and before it what makes the mask."""
    operands = [each.strip() for each in match["operands"].split(",")]
    words = [each for each in operands if not each.startswith("%")]
    values = [each.split()[0] for each in operands if each.startswith("%")]
    after = " ".join(each.partition(" ")[2] for each in operands if each.startswith("%")).strip()
    kind, types = match["kind"], match["type"]
    pointer = types.strip("(").split(",")[0].split(" ->")[0].split(")")[0].strip()
    if pointer.startswith("tensor"):
        shape = pointer[len("tensor<") : pointer.index("!tt.ptr")]
        masks, value = f"tensor<{shape}xi1>".replace("xx", "x"), pointer.replace("!tt.ptr<", "", 1).replace(">>", ">")
    else:
        masks, value = "i1", pointer.removeprefix("!tt.ptr<").removesuffix(">")
    mask = f"%what_mask{number}"
    never = "tt.splat %what_never : i1 -> " if masks != "i1" else "arith.andi %what_never, %what_never : "
    yield f"{mask} = {never}{masks}"
    given = values[2 if kind != "load" else 1 :][:1]
    if given:
        yield f"%what_both{number} = arith.andi {mask}, {given[0]} : {masks}"
        mask = f"%what_both{number}"
    if kind == "load":
        other = values[2:3]
        if not other:
            zero = "0.000000e+00" if re.search(r"(?:x|^)b?f\d", value) else "0"
            dense = f"dense<{zero}>" if value.startswith("tensor") else zero
            yield f"%what_other{number} = arith.constant {dense} : {value}"
            other = [f"%what_other{number}"]
        values = [values[0], mask, *other]
    else:
        values = [*values[:2], mask]
    if kind == "atomic_rmw" and not given:
        types = types.replace(") ->", f", {masks}) ->")
    listed = ", ".join([*words, *values])
    yield f"{match['begin']}{listed}{' ' + after if after else ''}{match['rest']}{types} loc({match['loc']})"


def launched(kernel: Any, grid: tuple[int, ...], arguments: list[Any]) -> float:
    """Return the milliseconds of one launch."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    kernel[(*grid, 1, 1)[:3]](*arguments)
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end))


def measured(pair: Planted, lab: kernellab.Lab, folder: Path) -> WhatIf:
    """Return what the variants of the slow half of a pair take, and its samples."""
    call, inputs = pair.slow, pair.inputs(True, "cuda")
    grid, given = call.of(inputs)
    original = call.kernel.warmup(**given, grid=grid)
    ttir = original.asm["ttir"]
    file = str(Path(call.kernel.fn.__code__.co_filename))
    lines = lines_of(ttir, file)
    accesses = {lines.get(m["loc"]) for m in map(_ACCESS.match, ttir.splitlines()) if m is not None}
    names = [name for name, kind in original.src.signature.items() if kind != "constexpr"]
    arguments = [given[name] for name in names]
    options = {"num_warps": original.metadata.num_warps, "num_stages": original.metadata.num_stages}
    variants = {0: compiled(ttir, options, folder)}
    variants |= {line: compiled(without_line(ttir, line, lines), options, folder) for line in accesses if line}
    times: dict[int, list[float]] = {line: [] for line in variants}
    for each in range(_ROUNDS + 2):
        for line, kernel in variants.items():
            took = launched(kernel, grid, arguments)
            if each >= 2:
                times[line].append(took)
    found = {line: (1e3 * median(ms), int(variants[line].n_regs)) for line, ms in times.items()}
    whole = found.pop(0)
    return WhatIf(pair.name, call.lines(), *whole, found, samples_of(lab, call, inputs))


def compiled(ttir: str, options: Mapping[str, Any], folder: Path) -> Any:
    """Return a kernel from the text of its TTIR, loaded."""
    path = folder / f"variant{abs(hash(ttir))}.ttir"
    path.write_text(ttir, encoding="utf-8")
    kernel = triton.compile(str(path), options=dict(options))
    kernel._init_handles()
    return kernel


def samples_of(lab: kernellab.Lab, call: KernelCall, inputs: Mapping[str, Any]) -> Mapping[int, float]:
    """Return the samples of each line of the kernel's file; those of inlined functions count for their caller."""
    grid, given = call.of(inputs)
    file, found = call.kernel.fn.__code__.co_filename, Counter[int]()
    for each in lab.profile(call.kernel, grid, **given).lines:
        places = [(each.file, each.line), *each.calls]
        line = next((line for where, line in places if where == file and line), None)
        if line is not None:
            found[line] += each.samples
    return found


def main(wanted: list[str]) -> None:
    lined = [pair for pair in PAIRS if pair.causes[0] not in WITHOUT_LINE]
    pairs = [pair for pair in lined if not wanted or any(word in pair.name for word in wanted)]
    rows, said = list[WhatIf](), [f"{torch.cuda.get_device_name()}, triton {triton.__version__}"]
    print(said[0], flush=True)
    with tempfile.TemporaryDirectory() as folder, kernellab.Lab(store=":memory:") as lab:
        for pair in pairs:
            try:
                rows.append(measured(pair, lab, Path(folder)))
            except (KernellabError, RuntimeError, KeyError, AssertionError) as exc:
                said.append(f"{pair.name:<38}not measured: {type(exc).__name__}: {str(exc).splitlines()[0][:120]}")
            else:
                said.append(rows[-1].text)
            print(said[-1], flush=True)
            torch.cuda.empty_cache()
    right = [sum(getattr(row, by) in row.marked for row in rows) for by in ("by_time", "by_samples")]
    said.append(f"right of {len(rows)}: what if {right[0]}, samples {right[1]}")
    print(said[-1])
    if not wanted:
        RESULT.write_text("\n".join(said) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
