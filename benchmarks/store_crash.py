"""What a store loses when its writers are killed: two processes write at once, and die at random moments.

First two processes write 10,000 rows each, undisturbed. Then pairs of them write until both are killed (SIGKILL) at a
random moment, over and over in one store. A row counts as committed once its writer has printed it. After each kill
the store is opened again, and must hold every row that was ever committed, pass SQLite's integrity check, and warn of
nothing.

    python benchmarks/store_crash.py [--rows 10000] [--kills 50]
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

from kernellab.store import Store

ROOT = Path(__file__).parents[1]
RESULT = Path(__file__).parent / "results" / "store_crash.txt"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=50)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lines = [undisturbed(Path(folder) / "calm", given.rows), killed(Path(folder) / "killed", given.kills)]
    text = "\n".join(lines) + "\n"
    RESULT.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


def undisturbed(folder: Path, rows: int) -> str:
    begin = time.perf_counter()
    pair = [writer(folder, mark, rows) for mark in "ab"]
    printed = [process.communicate()[0].splitlines() for process in pair]
    seconds = time.perf_counter() - begin
    kept = keys_of(folder)
    assert kept == set(printed[0]) | set(printed[1])
    assert len(kept) == 2 * rows
    return (
        f"two processes wrote {rows:,} rows each at once in {seconds:.1f} s ({2 * rows / seconds:,.0f} commits/s): "
        f"{len(kept):,} of {2 * rows:,} are there"
    )


def killed(folder: Path, kills: int) -> str:
    """Kill pairs of writers, each after a random number of rows and a random fraction of one more."""
    chance = random.Random(0)
    committed: set[str] = set()
    for round_ in range(kills):
        pair = [writer(folder, f"{mark}{round_}-", 1_000_000) for mark in "ab"]
        for process in pair:
            assert process.stdout is not None
            for _ in range(chance.randrange(1, 200)):
                committed.add(process.stdout.readline().strip())
        spin_until = time.perf_counter() + chance.random() * 2e-3
        while time.perf_counter() < spin_until:
            pass
        for process in pair:
            process.kill()
        for process in pair:
            rest = process.communicate()[0]
            committed.update(rest[: rest.rfind("\n") + 1].split())
        lost = committed - keys_of(folder)
        assert not lost, f"round {round_} lost {sorted(lost)[:3]}"
    size = sum(file.stat().st_size for file in folder.iterdir())
    return (
        f"{kills} times, both of two writers were killed at a random moment: {len(committed):,} rows were committed, "
        f"none is lost, the store opened and was sound each time ({size / 1e6:.1f} MB)"
    )


def writer(folder: Path, mark: str, rows: int) -> subprocess.Popen[str]:
    command = [sys.executable, str(ROOT / "tests" / "store" / "store_writer.py"), str(folder), mark, str(rows)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def keys_of(folder: Path) -> set[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = Store(folder)
    assert store.path is not None
    assert store.database.rows("PRAGMA integrity_check") == [("ok",)]
    keys = {row.measurement.key for row in store.history.measurements()}
    store.close()
    return keys


if __name__ == "__main__":
    main()
