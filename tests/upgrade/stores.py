"""Stores that look as if another version of Triton had filled them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kernellab.store import Snapshot, Store

OTHER = "3.0.0"


def as_of_another_triton(store: Store, triton: str = OTHER, **facts: Any) -> None:
    """Let results and snapshots be those of another Triton; ``facts`` replace fields of the snapshots."""
    for version in store.versions():
        results = {result.digest: result for _, result in store.history.results(version.id)}
        for row in store.history.launches(version.id):
            known = replace(results[row.launch.result], triton=triton)
            store.history.add_launch(version.id, row.launch, count=0, result=known)
        for (launch, _), snapshot in store.snapshots.of_version(version.id).items():
            store.snapshots.add(version.id, launch, replace(snapshot, triton=triton, **facts))


def snapshot(**fields: Any) -> Snapshot:
    """A snapshot of a kernel without anything worth a reason."""
    plain: dict[str, Any] = {
        "triton": OTHER, "target": "cuda:90", "device": "H100", "registers": 32, "spill_bytes": 0, "shared_bytes": 0,
        "occupancy": 1.0, "limiter": "threads", "resident": 16, "programs_per_sm": 30.0,
        "instructions": {"all": 40, "loads, 16 B wide": 2}, "wavefronts": 1000.0, "predicted_ms": 0.1,
        "terms": {"shared memory": 0.05},
    }  # fmt: skip
    return Snapshot(**{**plain, **fields})
