"""What Nsight Compute counts for the launches of `traffic_launches`, and what was compiled for them.

Usage: python3 benchmarks/traffic_truth.py --record FILE, with the repository on PYTHONPATH. Needs a CUDA GPU with open
counters. The file holds, per launch, the counters, the PTX and TTGIR, and the addresses of its arguments, so that a
machine without a GPU can compare (tests/explain/traffic/test_truth.py).
"""

from __future__ import annotations

import argparse
import base64
import csv
import json
import re
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

RECORD = Path(__file__).parent / "results" / "traffic_truth.json"
NCU = "/usr/local/cuda/bin/ncu"
KERNELS = "regex:^traffic_"
_L1 = "l1tex__{}_pipe_lsu_mem_global_op_{}.sum"
WANTED = (
    *(_L1.format(what, op) for what in ("t_requests", "t_sectors") for op in ("ld", "st", "atom", "red")),
    *(_L1.format("t_output_wavefronts", op) for op in ("ld", "st", "atom", "red")),
    *(f"l1tex__data_pipe_lsu_wavefronts_mem_shared{op}.sum" for op in ("", "_op_ld", "_op_st", "_op_atom")),
    *(f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared{op}.sum" for op in ("", "_op_ld", "_op_st", "_op_atom")),
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ldgsts.sum",
    "l1tex__data_bank_reads.sum",
    "l1tex__data_bank_writes.sum",
    "smsp__l1tex_tmain_requests.sum",
    *(f"smsp__sass_inst_executed_op_{what}.sum" for what in ("global_ld", "global_st", "shared_ld", "shared_st")),
    *(f"smsp__inst_executed_op_{what}.sum" for what in ("ldgsts", "ldsm", "shared_ld", "shared_st", "shared_atom")),
    *(f"smsp__inst_executed_op_{what}.sum" for what in ("global_ld", "global_st", "global_atom", "global_red")),
    "smsp__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared.sum",
    *(f"smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared{op}.sum" for op in ("", "_op_ld", "_op_st", "_op_ldgsts")),
    "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_ideal.sum",
    *(f"smsp__inst_executed_pipe_{pipe}.sum" for pipe in ("lsu", "uniform", "tma")),
    "l1tex__m_xbar2l1tex_read_sectors.sum",
    "l1tex__m_l1tex2xbar_write_sectors.sum",
    "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum",
    "l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_st.sum",
    "lts__t_sectors_op_read.sum",
    "lts__t_sectors_op_write.sum",
    "lts__t_sectors_op_atom.sum",
    "lts__t_sectors_op_red.sum",
    "lts__t_sectors_srcunit_tex.sum",
    "lts__t_requests_srcunit_tex.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
)


SURE = frozenset(
    (
        *(_L1.format(what, op) for what in ("t_requests", "t_sectors") for op in ("ld", "st", "atom", "red")),
        *(f"smsp__sass_inst_executed_op_{what}.sum" for what in ("global_ld", "global_st", "shared_ld", "shared_st")),
        *(f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum" for op in ("ld", "st")),
        *(f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum" for op in ("ld", "st")),
        "smsp__inst_executed_op_ldgsts.sum",
        "lts__t_sectors_op_read.sum",
        "lts__t_sectors_op_write.sum",
        "dram__bytes_read.sum",
    )
)
"""Metrics that every version of Nsight Compute has; of the others only those that it lists are asked for."""


def packed(content: bytes) -> str:
    """Return bytes as text for JSON, compressed."""
    return base64.b85encode(zlib.compress(content, 9)).decode("ascii")


def unpacked(text: str) -> bytes:
    """Return what `packed` was given."""
    return zlib.decompress(base64.b85decode(text))


def record(path: Path, *, binaries: bool = False) -> None:
    """Count all launches under Nsight Compute and write the record."""
    known = _known_metrics()
    metrics = [name for name in WANTED if name in SURE or name in known]
    with tempfile.TemporaryDirectory() as folder:
        compiled = Path(folder) / "compiled.json"
        log = Path(folder) / "ncu.log"
        command = [NCU, "--csv", "--print-units", "base", "--log-file", str(log), "--metrics", ",".join(metrics)]
        command += ["-k", KERNELS, sys.executable, __file__, "--launch", str(compiled)]
        command += ["--binaries"] if binaries else []
        done = subprocess.run(command, check=False, text=True, capture_output=True)
        sys.stderr.write(done.stdout[-2000:] + done.stderr[-4000:])
        text = log.read_text(encoding="utf-8") if log.exists() else ""
        if not compiled.exists():
            raise SystemExit(f"The launches did not run: {text[-4000:]}")
        content = json.loads(compiled.read_text(encoding="utf-8"))
    rows = _rows(text)
    ran = [name for name, found in content["launches"].items() if "error" not in found]
    if len(rows) != len(ran):
        path.with_suffix(".log").write_text(text, encoding="utf-8")
        raise SystemExit(f"{len(ran)} launches, {len(rows)} rows of Nsight Compute; see {path.with_suffix('.log')}.")
    for name, (kernel, counters) in zip(ran, rows, strict=True):
        found = content["launches"][name]
        assert kernel == found["kernel"], (name, kernel)
        found["counters"] = counters
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")
    failed = {name: found["error"] for name, found in content["launches"].items() if "error" in found}
    sys.stdout.write(f"{len(ran)} launches recorded, {len(metrics)} of {len(WANTED)} metrics\n")
    for name, error in failed.items():
        sys.stdout.write(f"failed: {name}: {error}\n")


def _known_metrics() -> frozenset[str]:
    """Return the metrics of this chip with their ``.sum``; empty where they cannot be listed."""
    command = [
        NCU,
        "--query-metrics-mode",
        "suffix",
        "--metrics",
        ",".join(sorted({n.removesuffix(".sum") for n in WANTED})),
    ]
    suffixed = subprocess.run([*command, "--query-metrics"], check=False, text=True, capture_output=True)
    plain = subprocess.run([NCU, "--query-metrics"], check=False, text=True, capture_output=True)
    names = re.findall(r"^(\w+__\w+)\s", plain.stdout, re.MULTILINE)
    suffixes = re.findall(r"^(\w+__\w+\.sum)\s", suffixed.stdout, re.MULTILINE)
    return frozenset([*(f"{name}.sum" for name in names), *suffixes])


def _rows(text: str) -> list[tuple[str, dict[str, float]]]:
    """Return the kernel and the counters of each launch, in their order."""
    start = text.find('"ID"')
    found: dict[str, tuple[str, dict[str, float]]] = {}
    for row in csv.DictReader(text[start:].splitlines()) if start >= 0 else ():
        _, counters = found.setdefault(row["ID"], (row["Kernel Name"].partition("(")[0], {}))
        try:
            counters[row["Metric Name"]] = float(row["Metric Value"].replace(",", ""))
        except ValueError:
            continue  # n/a
    return list(found.values())


def launch_all(path: Path, *, binaries: bool) -> None:
    """Launch everything once and write what was compiled; called under Nsight Compute."""
    import torch
    import triton

    from benchmarks.traffic_launch import on_device
    from benchmarks.traffic_launches import traffic_launches

    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))
    content: dict[str, Any] = {
        "triton": triton.__version__,
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(),
        "launches": {},
    }
    for launch in traffic_launches():
        arguments = [on_device(argument, "cuda") for argument in launch.arguments]
        found: dict[str, Any] = {"kernel": launch.kernel.fn.__name__}
        content["launches"][launch.name] = found
        try:
            compiled = launch.kernel[launch.grid](*arguments, **launch.meta)
            torch.cuda.synchronize()
        except Exception as exc:  # noqa: BLE001 - the record says so
            found["error"] = f"{type(exc).__name__}: {str(exc)[:500]}"
            continue
        found["addresses"] = [_address(argument) for argument in arguments]
        found["warps"] = compiled.metadata.num_warps
        found["shared"] = compiled.metadata.shared
        for stage in ("ttgir", "ptx"):
            found[stage] = packed(compiled.asm[stage].encode())
        if binaries:
            found["cubin"] = packed(compiled.asm["cubin"])
    path.write_text(json.dumps(content), encoding="utf-8")


def _address(argument: Any) -> int | None:
    tensor = getattr(argument, "base", argument)
    return tensor.data_ptr() if hasattr(tensor, "data_ptr") else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path, metavar="FILE", help="count on this machine's GPU")
    parser.add_argument("--binaries", action="store_true", help="keep the machine code, too")
    parser.add_argument("--launch", type=Path, metavar="FILE", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.launch:
        launch_all(chosen.launch, binaries=chosen.binaries)
    elif chosen.record:
        record(chosen.record, binaries=chosen.binaries)
    else:
        parser.error("nothing to do: give --record FILE")


if __name__ == "__main__":
    main()
