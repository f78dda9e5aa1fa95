"""A dispatch as a module, in a process without the lab: what it chooses, what a launch costs the host, what one gains.

Usage: python -m benchmarks.dispatch_export. Needs a CUDA GPU. A matrix product in fp16 is tuned over twelve shapes and
exported. The module alone checks itself, then launches each shape: as its ``launch`` chooses, with one config for all
(the first of the decision), and without a choice but with the same config through Triton's own path, in turns. Prints a
table and writes benchmarks/results/dispatch_export.txt.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import kernellab
from benchmarks.tune_over import KERNEL, grid, inputs
from benchmarks.tune_products import matmul

RESULT = Path(__file__).parent / "results" / "dispatch_export.txt"
SHAPES = [{"M": m, "N": n, "K": 4096} for m in (16, 64, 256, 1024) for n in (1024, 4096, 8192)]
FORGIVEN = 1.02

DRIVER = """\
import json, statistics, sys, time
sys.path.insert(0, sys.argv[1])
import torch, triton
import matmul

def host_us(launch, count=200):
    begin = time.perf_counter()
    for _ in range(count):
        launch()
    passed = time.perf_counter() - begin
    torch.cuda.synchronize()
    return passed / count * 1e6

found = {"check": matmul.check("cuda"), "shapes": []}
for meta in matmul.decision_on(torch.device("cuda"))["configs"]:
    matmul.check("cuda", **meta)
first = matmul.decision_on(torch.device("cuda"))["configs"][0]
for shape in json.loads(sys.argv[2]):
    m, n, k = shape["M"], shape["N"], shape["K"]
    a = torch.randn(m, k, device="cuda", dtype=torch.float16)
    b = torch.randn(k, n, device="cuda", dtype=torch.float16)
    c = torch.empty(m, n, device="cuda", dtype=torch.float16)
    given = dict(a_ptr=a, b_ptr=b, c_ptr=c, m=m, n=n, k=k)
    chosen = matmul.config_for((m, n, k), a.device, {})
    grid = lambda meta: (triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"]),)
    ways = {
        "launch": lambda: matmul.launch(**given),
        "direct": lambda: matmul.matmul[grid](**given, **chosen),
        "one config": lambda: matmul.launch(**given, **first),
    }
    row = {"chosen": chosen}
    for name, launch in ways.items():
        launch()
        row[name] = triton.testing.do_bench(launch, rep=60)
    torch.cuda.synchronize()
    small = {name: [] for name in ("launch", "direct")}
    for _ in range(15):
        for name in small:
            small[name].append(host_us(ways[name], 50))
    row["host_us"] = {name: statistics.median(values) for name, values in small.items()}
    found["shapes"].append(row)
assert not [name for name in sys.modules if name.startswith("kernellab")]
print(json.dumps(found))
"""


def exported(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Tune, write the module, and return facts of the device with what the lab chooses for each shape."""
    with kernellab.Lab(store=":memory:") as lab:
        lab.start(wait=True)
        begin_s = time.perf_counter()
        dispatch = lab.tune_over(KERNEL, grid, over=SHAPES, inputs=inputs, configs=matmul.configs, max_configs=6)
        seconds = time.perf_counter() - begin_s
        dispatch.export(folder / "matmul.py")
        chosen = [dispatch.choose(**shape).all_kwargs() for shape in SHAPES]
        return {**dispatch.provenance, "seconds": seconds}, chosen


def used(folder: Path) -> dict[str, Any]:
    """Return what the module does in a process of its own that knows nothing of the lab."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", DRIVER, str(folder), json.dumps(SHAPES)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)
    if ran.returncode:
        sys.exit(ran.stderr)
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def lines_of(facts: dict[str, Any], chosen: list[dict[str, Any]], found: dict[str, Any]) -> list[str]:
    """Return the report."""
    rows = found["shapes"]
    head = f"{facts.get('device')}, triton {facts.get('triton')}, torch {facts.get('torch')}: matmul fp16"
    lines = [head, f"tuned over {len(SHAPES)} shapes in {facts['seconds']:.1f} s; the module {found['check']}", ""]
    lines.append(
        f"{'M':>6}{'N':>6}{'K':>6}{'chosen ms':>11}{'one config':>12}{'gain':>7}{'host us':>9}{'direct us':>11}"
    )
    same = 0
    for shape, own, row in zip(SHAPES, chosen, rows, strict=True):
        same += all(own.get(name) == value for name, value in row["chosen"].items())
        gain, host = row["one config"] / row["launch"], row["host_us"]
        lines.append(
            f"{shape['M']:>6}{shape['N']:>6}{shape['K']:>6}{row['launch']:>11.4f}{row['one config']:>12.4f}{gain:>7.2f}"
            f"{host['launch']:>9.2f}{host['direct']:>11.2f}"
        )
    added = sorted(row["host_us"]["launch"] - row["host_us"]["direct"] for row in rows)
    slower = sum(row["launch"] > FORGIVEN * row["one config"] for row in rows)
    lines += [
        "",
        f"choices that equal those of the lab: {same} of {len(rows)}",
        f"shapes where one config for all is faster by more than 2 %: {slower}",
        f"host time that `launch` adds to a direct launch: median {added[len(added) // 2]:.2f} us",
    ]
    return lines


def main() -> None:
    """Tune, export, run the module, and write the report."""
    with tempfile.TemporaryDirectory() as name:
        facts, chosen = exported(Path(name))
        lines = lines_of(facts, chosen, used(Path(name)))
    text = "\n".join(lines)
    print(text)
    RESULT.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
