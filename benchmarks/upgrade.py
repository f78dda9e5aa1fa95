"""A gate for upgrades, from one Triton to another: which changes it names, and which it suspects without a change.

    python -m benchmarks.upgrade [--old .venv-3.6.0/bin/python] [--folder build/upgrade]

The old Python fills a store by `lab.tune`: kernels with one config each, which win for want of others, and the good and
the worse form of each planted change, of which the good form's snapshot is kept for the worse form. So what is compiled
by this Python is worse than what was kept, as if the compiler had made it so. A second gate compiles the same store by
the old Python: whatever is suspect there, but for the planted changes, is a false alarm of the comparison alone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import triton

import kernellab
from benchmarks.truth_recipes import RECIPES
from benchmarks.upgrade_kernels import CHANGES, Change
from kernellab.store import RecordedLaunch, Version
from kernellab.store.decoding import launch_digest
from kernellab.timing.config import Config
from kernellab.upgrade.result import Upgrade, UpgradeOutcome, UpgradeRow
from kernellab.upgrade.winners import stored_winners
from tests.kernels.cases import all_cases

RESULTS = Path(__file__).parent / "results"
TARGET = "cuda:90"
_PER_RECIPE = 2
PLANTED = "planted.json"


def fill_held_out(folder: Path) -> None:
    """Fill a store with winners at sizes and with configs that no threshold was chosen by; nothing is planted."""
    with kernellab.Lab(TARGET, folder) as lab:
        for name, recipe in RECIPES.items():
            for index, sizes in enumerate(recipe.sizes[-2:]):
                config = recipe.configs[(index * 5 + 1) % len(recipe.configs)]
                _tune(lab, f"{name} {dict(sizes)}", recipe.kernel, recipe.grid, recipe.inputs("cpu", **sizes), config)
    (folder / PLANTED).write_text("{}", encoding="utf-8")


def fill(folder: Path) -> None:
    """Fill a store with winners under this Triton, and plant the changes."""
    with kernellab.Lab(TARGET, folder) as lab:
        for name, recipe in RECIPES.items():
            for index, sizes in enumerate(recipe.sizes[:_PER_RECIPE]):
                config = recipe.configs[(index * 7 + 3) % len(recipe.configs)]
                inputs = recipe.inputs("cpu", **sizes)
                _tune(lab, f"{name} {dict(sizes)}", recipe.kernel, recipe.grid, inputs, config)
        for case in all_cases().values():
            options = {n: case.meta[n] for n in ("num_warps", "num_stages") if n in case.meta}
            constants = {n: v for n, v in case.meta.items() if n not in options}
            config = triton.Config(constants, **options)
            _tune(lab, case.name, case.kernel, case.grid, case.fresh_arguments(), config)
        planted = {change.name: _plant(lab, change) for change in CHANGES}
    (folder / PLANTED).write_text(json.dumps(planted), encoding="utf-8")


def _tune(lab: kernellab.Lab, name: str, kernel: Any, grid: Any, inputs: Mapping[str, Any], config: Any) -> None:
    tuning = lab.tune(lab.bind(kernel), grid, configs=[config], **inputs)
    if tuning.winner is None:
        print(f"{name}: {tuning.rows[0].status} {tuning.rows[0].reason}", file=sys.stderr)


def _plant(lab: kernellab.Lab, change: Change) -> str:
    """Tune both forms of a change, the worse one last; keep the good form's snapshot for it; return its digest."""
    launches = []
    for kernel, values in ((change.kernel, change.good), (change.worse_kernel or change.kernel, change.worse)):
        config = Config.of({"num_warps": 4, "num_stages": 3, "num_ctas": 1, **change.common, **values}).to_triton()
        _tune(lab, change.name, kernel, change.grid, change.inputs(), config)
        launches.append(_latest_launch(lab, kernel))
    (good_version, good), (worse_version, worse) = launches
    store = lab.kernels.store
    kept = store.snapshots.of_version(good_version.id)[launch_digest(good), triton.__version__]
    store.snapshots.add(worse_version.id, launch_digest(worse), kept)
    return launch_digest(worse)


def _latest_launch(lab: kernellab.Lab, kernel: Any) -> tuple[Version, RecordedLaunch]:
    version = lab.kernels.version(kernel.__name__)
    return version, lab.kernels.store.history.launches(version.id)[-1].launch


def gate(folder: Path, python: str | None) -> Iterator[str]:
    """Yield the lines of a gate over a filled store under this Triton."""
    digests = json.loads((folder / PLANTED).read_text(encoding="utf-8"))
    start = time.perf_counter()
    with kernellab.Lab(TARGET, folder) as lab:
        before = sorted({result.triton for _, result in lab.kernels.store.history.results()})[0]
        upgrade = lab.upgrade(before, python=python)
        winners = {
            w.digest: (w.version.label, w.sizes, w.config) for w in stored_winners(lab.kernels.store, "", before)
        }
    seconds = time.perf_counter() - start
    planted = {winners[digest]: name for name, digest in digests.items()}
    rows = {(row.kernel, row.launch, row.config): row for row in upgrade.winners}
    others = [row for key, row in rows.items() if key not in planted]
    yield f"Triton {before} -> {triton.__version__}: {len(rows)} stored winners, {seconds:.0f} s without a GPU"
    if planted:
        yield from _planted_lines({name: rows[key] for key, name in planted.items()})
    yield from _other_lines(others)
    if python is not None:
        yield from _parting_lines(upgrade)


def _planted_lines(rows: Mapping[str, UpgradeRow]) -> Iterator[str]:
    kinds = {change.name: change.kinds for change in CHANGES}
    named = {name for name, row in rows.items() if kinds[name] & {reason.kind for reason in row.reasons}}
    yield f"planted changes named: {len(named)} of {len(rows)}"
    for name, row in rows.items():
        first = next((str(r) for r in row.reasons if r.kind in kinds[name]), f"NOT NAMED: {row.why or row.outcome}")
        yield f"  {name}: {first}"


def _other_lines(rows: Sequence[UpgradeRow]) -> Iterator[str]:
    counts = Counter(str(row.outcome) for row in rows)
    suspects = [row for row in rows if row.outcome in {UpgradeOutcome.SUSPECT, UpgradeOutcome.FAILS}]
    share = len(suspects) / max(1, len(rows))
    words = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    yield f"others: {len(rows)}, of which suspect {len(suspects)} ({share:.1%}): {words}"
    for row in rows:
        if row.outcome is not UpgradeOutcome.SAME:
            yield f"  {row.outcome}: {row.kernel} ({row.launch}), {row.config}: {row.why}"
    ratios = sorted(row.ratio for row in rows if row.ratio is not None)
    if ratios:
        middle = ratios[len(ratios) // 2]
        yield f"  predicted times after by before: {ratios[0]:.3f} to {ratios[-1]:.3f}, median {middle:.3f}"


def _parting_lines(upgrade: Upgrade) -> Iterator[str]:
    stages = Counter(row.parting.stage or "nowhere" for row in upgrade.winners if row.parting is not None)
    yield f"first stage that differs: {', '.join(f'{stage} {count}' for stage, count in stages.most_common())}"
    shown = next((row for row in upgrade.winners if row.parting is not None and row.parting.stage == "ttgir"), None)
    if shown is not None and shown.parting is not None:
        yield f"  such as {shown.kernel}, ttgir: {str(shown.parting.lines[0])[:200]}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument(
        "step", nargs="?", choices=("fill", "fill-held-out", "gate"), help="one step alone, under this Python"
    )
    options.add_argument("--old", default=".venv-3.6.0/bin/python", help="the Python with the earlier Triton")
    options.add_argument("--folder", type=Path, default=Path("build/upgrade"))
    args = options.parse_args()
    if args.step == "fill":
        return fill(args.folder)
    if args.step == "fill-held-out":
        return fill_held_out(args.folder)
    if args.step == "gate":
        return print("\n".join(gate(args.folder, None)))
    run = [args.old, "-m", "benchmarks.upgrade", "--folder", str(args.folder)]
    if not (args.folder / PLANTED).exists():
        subprocess.run([*run, "fill"], check=True)
    with subprocess.Popen([*run, "gate"], stdout=subprocess.PIPE, text=True) as control:
        lines = list(gate(args.folder, args.old))
        same = control.communicate()[0].splitlines()
    if control.returncode:
        raise SystemExit(control.returncode)
    lines += ["", "The same store by the Triton that filled it:", *same]
    held_out = args.folder / "held-out"
    if not (held_out / PLANTED).exists():
        subprocess.run([args.old, "-m", "benchmarks.upgrade", "--folder", str(held_out), "fill-held-out"], check=True)
    lines += ["", "At sizes and with configs that no threshold was chosen by:", *gate(held_out, None)]
    (RESULTS / "upgrade.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    return None


if __name__ == "__main__":
    main()
