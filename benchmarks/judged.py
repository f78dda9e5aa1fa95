"""Every cheat and every honest candidate of the tests, judged on the CPU: verdict, rule and seconds.

    python -m benchmarks.judged [PREFIX ...]

Names that begin with a prefix are judged alone. The last line has the totals.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any

from kernellab.errors import KernellabError
from kernellab.judge.judging import judge

_LIMIT_S = 20.0


def judged(name: str, specification: Path, text: str, folder: Path) -> tuple[str, str, float]:
    """Return the verdict, or that the judge failed, with the rule of the first reason and the seconds."""
    file = folder / f"{name}.py"
    file.write_text(text)
    try:
        verdict = judge(specification, file, time=False, seed=1, timeout_s=_LIMIT_S)
    except KernellabError as exc:
        return "judge failed", type(exc).__name__, 0.0
    return verdict.verdict, verdict.reasons[0].rule if verdict.reasons else "", verdict.seconds


def _parts_of(candidate: Any) -> tuple[str, str, str]:
    """Return name, specification and text of a candidate, which is a tuple of these or has them as fields."""
    if isinstance(candidate, tuple):
        return candidate[0], candidate[1], candidate[2]
    return candidate.name, candidate.specification, candidate.text


def judged_table(folder: Path, table: str, prefixes: tuple[str, ...]) -> list[tuple[str, str, str, float]]:
    """Judge the candidates of a table of the tests, print a line for each, and return the rows."""
    try:
        candidates = importlib.import_module(f"tests.judge.{table}.candidates").CANDIDATES
    except ImportError as exc:
        print(f"no {table} candidates: {exc}")
        return []
    rows = []
    for candidate in candidates:
        name, specification, text = _parts_of(candidate)
        if prefixes and not name.startswith(prefixes):
            continue
        file = Path("tests") / "judge" / table / f"spec_{specification.removeprefix('spec_').removesuffix('.py')}.py"
        verdict, rule, seconds = judged(name, file, text, folder)
        print(f"{table:<7} {name:<56} {verdict:<12} {rule:<20} {seconds:5.1f} s", flush=True)
        rows.append((name, verdict, rule, seconds))
    return rows


def main(prefixes: tuple[str, ...]) -> None:
    """Judge all candidates and print the totals."""
    with tempfile.TemporaryDirectory() as folder:
        cheats = judged_table(Path(folder), "cheats", prefixes)
        honest = judged_table(Path(folder), "honest", prefixes)
    accepted = [name for name, verdict, _, _ in cheats if verdict == "accepted"]
    failed = [name for name, verdict, _, _ in (*cheats, *honest) if verdict == "judge failed"]
    refused = [name for name, verdict, _, _ in honest if verdict != "accepted"]
    slowest = max((seconds for *_, seconds in (*cheats, *honest)), default=0.0)
    print(
        f"cheats accepted {len(accepted)} of {len(cheats)}; honest refused {len(refused)} of {len(honest)}; "
        f"judge failed {len(failed)}; slowest {slowest:.1f} s"
    )
    for name in (*accepted, *refused, *failed):
        print(f"  see {name}")


if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
