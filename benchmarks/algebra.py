"""Comparisons without a tolerance: right variants are equal, wrong ones differ, also those that pass torch.allclose.

python -m benchmarks.algebra
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import triton

import kernellab
from benchmarks import algebra_kernels as kernels
from benchmarks.algebra_variants import CLOSE, RIGHT, Variant
from kernellab.errors import KernellabError, OutOfBounds, RunError
from tests.inside.planted_faults import EQUAL, FAULTS, Change
from tests.inside.transcripts import CASES

RESULT = Path(__file__).parent / "results" / "algebra.txt"
OTHERWISE_EQUAL = {
    "welford: (mean * count + other_mean * other_count) / both": "x / x is not always 1",
    "sort: tl.store(out + offsets, ordered * 3 / 3)": "the payload of 3.0 is even, so x * 3 / 3 is not x",
    "descriptors: tile * 2": "the payload of 2.0 is not 2, so x * 2 is not x + x",
}
"""Changes that only round otherwise and that the algebra tells apart, with the reason."""
_CASES = {case.name: case for case in CASES}
_MOST = 60


def main() -> None:
    start_s = time.perf_counter()
    with tempfile.TemporaryDirectory() as name, kernellab.Lab(store=":memory:") as lab:
        folder = Path(name)
        planted = [change for change in EQUAL if change.name not in OTHERWISE_EQUAL]
        right = [*answers(lab, planted, folder), *(answer(lab, variant, folder) for variant in RIGHT)][:_MOST]
        wrong = list(answers(lab, FAULTS, folder))[:_MOST]
        apart = list(answers(lab, [change for change in EQUAL if change.name in OTHERWISE_EQUAL], folder))
        close = [(*answer(lab, variant, folder), passes_allclose(lab, variant, folder)) for variant in CLOSE]
    close = [row for row in close if row[2]]
    lines = [
        f"triton {triton.__version__}, torch {torch.__version__}; lab.equivalent, on the CPU",
        "",
        f"right variants:                        {count(right, 'equal')} of {len(right)} equal",
        f"wrong variants:                        {len(wrong) - count(wrong, 'equal')} of {len(wrong)} differ or fail",
        f"wrong variants that pass allclose:     {len(close) - count(close, 'equal')} of {len(close)} differ",
        f"seconds, all of them:                  {time.perf_counter() - start_s:.0f}",
        "",
        "right variants that are not equal in the algebra:",
        *(f"  {name}: {found}; {OTHERWISE_EQUAL[name]}" for name, found in apart),
        "missed, of the wrong ones:",
        *(f"  {row[0]}" for row in (*wrong, *close) if row[1] == "equal"),
        "different, of the right ones:",
        *(f"  {row[0]}: {row[1]}" for row in right if row[1] != "equal"),
        "",
        *(f"right  {found:<8}{name}" for name, found in right),
        *(f"wrong  {found:<8}{name}" for name, found in wrong),
        *(f"close  {row[1]:<8}{row[0]}" for row in close),
        "",
    ]
    RESULT.write_text("\n".join(lines), encoding="utf-8")
    sys.stdout.write("\n".join(lines))


def count(rows: Iterable[tuple[Any, ...]], answer: str) -> int:
    return sum(row[1] == answer for row in rows)


def answers(lab: kernellab.Lab, changes: Iterable[Change], folder: Path) -> Iterable[tuple[str, str]]:
    """The answers for changes of the kernels that the tests of first differences have."""
    for change in changes:
        case = _CASES[change.kernel]
        changed, _ = change.apply(folder)
        yield change.name, verdict(lab, case.kernel, changed, case.grid, (), case.arguments())


def answer(lab: kernellab.Lab, variant: Variant, folder: Path) -> tuple[str, str]:
    launch, other = variant.launch, variant.compared_with(folder)
    kernel = getattr(kernels, launch.kernel)
    found = verdict(lab, kernel, other, launch.grid, launch.arguments(), launch.meta)
    return f"{variant.kernel}: {variant.name}", found


def verdict(lab: kernellab.Lab, kernel: Any, other: Any, grid: Any, args: tuple[Any, ...], meta: dict[str, Any]) -> str:
    """``equal``, ``differs``, ``fails`` where a variant reads out of bounds or raises, or ``unsure``."""
    try:
        result = lab.equivalent(kernel, other, grid, *args, **meta)
    except (OutOfBounds, RunError):
        return "fails"
    except KernellabError as exc:
        return f"error: {exc}"
    if result.unmodelled and result.equal:
        return "unsure"
    return "equal" if result.equal else "differs"


def passes_allclose(lab: kernellab.Lab, variant: Variant, folder: Path) -> bool:
    """Whether a wrong variant passes ``torch.allclose`` at its defaults, on real values."""
    launch = variant.launch
    outputs = []
    for kernel in (getattr(kernels, launch.kernel), variant.compared_with(folder)):
        arguments = launch.arguments()
        lab.run(kernel, launch.grid, *arguments, **launch.meta)
        outputs.append([value for value in arguments if isinstance(value, torch.Tensor)])
    return all(torch.allclose(one, other) for one, other in zip(*outputs, strict=True))


if __name__ == "__main__":
    main()
