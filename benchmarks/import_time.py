"""What `import kernellab` adds to starting Python."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

RESULT = Path(__file__).parent / "results" / "import_time.txt"
REPETITIONS = 15
GOAL_MS = 100


def main() -> None:
    bare, imported = [], []
    for _ in range(REPETITIONS):
        bare.append(start_ms("pass"))
        imported.append(start_ms("import kernellab"))
    added = statistics.median(imported) - statistics.median(bare)
    text = (
        f"medians of {REPETITIONS} starts of Python {sys.version.split()[0]}, ms; goal: added < {GOAL_MS} ms\n"
        f"python -c pass               {statistics.median(bare):7.1f}\n"
        f"python -c 'import kernellab' {statistics.median(imported):7.1f}\n"
        f"added                        {added:7.1f}\n"
    )
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


def start_ms(code: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return (time.perf_counter() - start) * 1000


if __name__ == "__main__":
    main()
