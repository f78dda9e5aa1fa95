"""What two hundred interrupts of a session leave behind: see `tests.workers.interrupted`.

python benchmarks/interrupts.py [--moments 200] [--seed 0]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from tests.workers.interrupted import session

RESULT = Path(__file__).parent / "results" / "interrupts.txt"
VERBS = ("start", "first", "compile", "run", "tune", "close")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--moments", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = session(given.moments, given.seed, Path(folder), CUDA_VISIBLE_DEVICES="")
        text = told(found, len(os.listdir(folder)))
    RESULT.write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    assert not found["faults"]


def told(found: dict[str, Any], files: int) -> str:
    counts = Counter({name: value for name, value in found.items() if isinstance(value, int)})
    verbs = ", ".join(f"{v} {counts[f'{v} interrupted'] + counts[f'{v} went through']}" for v in VERBS)
    through = sum(counts[f"{verb} went through"] for verb in VERBS)
    moments, longest_s, more = counts["moments"], counts["longest_ms"] / 1e3, counts["descriptors"]
    faults = len(found["faults"])
    lines = [
        f"{moments} moments ({verbs}), {counts['interrupts']} SIGINTs: at every fourth moment, a second one follows",
        f"{moments - through} verbs were interrupted, {through} had just ended; the process lived",
        f"longest from a call to its end, with the end of all that it stops: {longest_s:.1f} s",
        f"wrong or failed compiles and launches afterwards, and processes, zombies, threads or folders left: {faults}",
        f"files left in the temporary folder: {files}; more descriptors than at the beginning: {max(0, more)}",
        *found["faults"],
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
