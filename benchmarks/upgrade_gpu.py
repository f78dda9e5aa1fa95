"""A gate for upgrades on a GPU: winners tuned there under one Triton, compared and timed again under another.

    PYTHONPATH=$PWD python3 -m benchmarks.upgrade_gpu fill FOLDER                      # by the earlier Triton
    PYTHONPATH=$NEWER:$PWD python3 -m benchmarks.upgrade_gpu gate FOLDER --seconds 90  # by the later one

The first step tunes a few configs of each kernel of the recorded times at its last sizes. Of every sixth winner, the
kept times are then made 12 % shorter, as if the later compiler had made it slower. The second step runs the gate, and
then times *all* winners again, so that what was called the same is checked, too: a change counts as real where the
intervals are disjoint and the medians differ by more than the margin of `lab.regressions`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
import triton

import kernellab
from benchmarks.truth_recipes import RECIPES
from kernellab.errors import KernellabError
from kernellab.registry.regressions import TimeChange
from kernellab.store import Store
from kernellab.target import device_name
from kernellab.upgrade import verbs
from kernellab.upgrade.result import UpgradeOutcome, UpgradeRow
from kernellab.upgrade.verbs import upgrade_of
from kernellab.upgrade.winners import stored_winners

CONFIGS = 3
PLANTED_EACH = 6
SHORTER = 0.88
PLANTED = "planted.json"


def fill(folder: Path, seconds: float) -> None:
    """Tune the kernels, one launch each, and shorten the kept times of some."""
    end, planted = time.monotonic() + seconds, list[str]()
    with kernellab.Lab(store=folder) as lab:
        for name, recipe in RECIPES.items():
            if time.monotonic() > end:
                print(f"no time for {name}", flush=True)
                continue
            step = max(1, len(recipe.configs) // CONFIGS)
            configs, sizes = recipe.configs[::step][:CONFIGS], recipe.sizes[-1]
            try:
                lab.tune(lab.bind(recipe.kernel), recipe.grid, configs=configs, **recipe.inputs("cuda", **sizes))
            except KernellabError as exc:
                print(f"{name}: {exc.message}", flush=True)
            torch.cuda.empty_cache()
    with kernellab.Lab(store=folder) as lab:
        store = lab.kernels.store
        for number, winner in enumerate(stored_winners(store, "", triton.__version__)):
            if number % PLANTED_EACH == PLANTED_EACH // 2:
                _shorten(store, winner.version.id)
                planted.append(winner.version.label)
        kept = sum(len(store.snapshots.of_version(version.id)) for version in store.versions())
    (folder / PLANTED).write_text(json.dumps(planted), encoding="utf-8")
    print(f"Triton {triton.__version__}: {number + 1} winners, {kept} snapshots, {len(planted)} with shorter times")


def _shorten(store: Store, version: int) -> None:
    """Make the kept times of a version shorter, and what its snapshots predict."""
    rows = [row.measurement for row in store.history.measurements(version)]
    store.database.execute("DELETE FROM measurements WHERE version_id = ?", version)
    names = ("low_ms", "high_ms")
    store.history.add_measurements(
        version,
        [
            replace(
                row,
                time_ms=row.time_ms and row.time_ms * SHORTER,
                details={n: v * SHORTER if n in names and v else v for n, v in row.details.items()},
            )
            for row in rows
        ],
    )
    for (launch, _), snapshot in store.snapshots.of_version(version).items():
        predicted = snapshot.predicted_ms and snapshot.predicted_ms * SHORTER
        store.snapshots.add(version, launch, replace(snapshot, predicted_ms=predicted))


def gate(folder: Path, seconds: float) -> Iterator[str]:
    """Yield the lines of a gate under this Triton, and whether the times of all winners agree with it."""
    planted = json.loads((folder / PLANTED).read_text(encoding="utf-8"))
    began = time.perf_counter()
    with kernellab.Lab(store=folder) as lab:
        before = next(r.triton for _, r in lab.kernels.store.history.results() if r.triton != triton.__version__)
        winners = {_key(w.version.label, w.sizes, w.config): w for w in stored_winners(lab.kernels.store, "", before)}
        upgrade = upgrade_of(lab.session, before, None, times=False)
        compared = time.perf_counter() - began
        yield f"{device_name()}, torch {torch.__version__}, Triton {before} -> {triton.__version__}"
        yield f"{len(upgrade.winners)} winners compared in {compared:.0f} s"
        rows, end = list(upgrade.winners), time.monotonic() + seconds
        chosen = {_key_of(rows[i]) for i in verbs.rows_to_time(rows)}
        timed: list[UpgradeRow] = []
        for row in sorted(rows, key=lambda row: _key_of(row) not in chosen):
            if time.monotonic() > end:
                yield f"no time for {row.kernel}"
                continue
            timed.append(verbs.retimed_row(lab.session(None), winners[_key_of(row)], row))
    yield from _rows(timed, planted, chosen)


def _key(kernel: str, sizes: str, config: str) -> str:
    return f"{kernel} {sizes} {config}"


def _key_of(row: UpgradeRow) -> str:
    return _key(row.kernel, row.launch, row.config)


def _rows(timed: list[UpgradeRow], planted: list[str], chosen: set[str]) -> Iterator[str]:
    counts: Counter[tuple[bool, bool, bool]] = Counter()
    yield "kernel                    planted  compared  predicted  timed again: ratio, low, high"
    for row in timed:
        assert row.retimed is not None
        ratio, is_slower = row.retimed.ratio, row.retimed.became in {TimeChange.SLOWER, TimeChange.FAILS}
        is_suspect = row.reasons != () or row.outcome is UpgradeOutcome.FAILS
        counts[row.kernel in planted, is_suspect, is_slower] += 1
        words = "" if ratio is None else f"{ratio.median:5.2f} {ratio.low:5.2f} {ratio.high:5.2f}"
        by = "timed by the gate" if _key_of(row) in chosen else ""
        yield (
            f"{row.kernel:<26}{'yes' if row.kernel in planted else '':<9}{'suspect' if is_suspect else '':<10}"
            f"{row.ratio or 1:5.2f}  {by:<18}{row.retimed.became:<13}"
            f"{words}  {row.retimed.best}{row.retimed.reason}  {'; '.join(map(str, row.reasons))[:160]}"
        )
    planted_rows = sum(n for key, n in counts.items() if key[0])
    slower = sum(n for key, n in counts.items() if key[0] and key[2])
    yield f"planted: {slower} of {planted_rows} found slower"
    others = {key[1:]: n for key, n in counts.items() if not key[0]}
    yield (
        f"others: {others.get((False, False), 0)} the same and called so; {others.get((True, True), 0)} slower and "
        f"suspect; {others.get((True, False), 0)} suspect, cleared by their times; {others.get((False, True), 0)} "
        "slower and not suspect"
    )


def main() -> None:
    """Run one step."""
    triton.set_allocator(lambda size, align, stream: torch.empty(size, device="cuda", dtype=torch.int8))
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("step", choices=("fill", "gate"))
    options.add_argument("folder", type=Path)
    options.add_argument("--seconds", type=float, default=90.0, help="after which no other kernel is begun")
    args = options.parse_args()
    if args.step == "fill":
        fill(args.folder, args.seconds)
    else:
        for line in gate(args.folder, args.seconds):
            print(line, flush=True)


if __name__ == "__main__":
    main()
