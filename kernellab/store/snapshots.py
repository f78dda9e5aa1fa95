"""What the compiler made of a recorded launch, as numbers that hold without the compiler, and kept answers of
``kernellab explain``, which hold as long as the files that they were made from are the same.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from kernellab.source import parse_json, reading, record_of_json, require_type
from kernellab.store.database import Database
from kernellab.store.decoding import canonical_json, require_moment


@dataclass(frozen=True, slots=True)
class AccessSummary:
    """The accesses of one source line to one argument in global memory, over the launch.

    ``width_bytes`` are those of one thread's narrowest instruction, ``requests`` the instructions of warps, ``sectors``
    the transferred ones of 32 bytes. ``is_async`` is True for asynchronous copies to shared memory.
    """

    line: int | None
    operation: str
    argument: str
    width_bytes: int
    is_async: bool
    requests: float
    sectors: float


@dataclass(frozen=True, slots=True)
class ProductSummary:
    """The matrix products of one source line: element type, and the tensor instructions (``wgmma``, ``mma``) or ""."""

    line: int | None
    kind: str
    unit: str
    flops: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one version of Triton made of one launch; fields that are not known are None or empty.

    Resources are those of `kernellab.compile.types.Resources`. ``instructions`` counts those of the assembly by kind,
    ``all`` together with the rest; ``loop_code`` those of the machine code by mnemonic, in loops where there are some.
    ``programs_per_sm`` is the number of programs for each SM of the ``device``,
    ``resident`` how many fit on one at a time. ``wavefronts`` are those of shared memory. ``predicted_ms`` is the
    estimated time on the ``device``, and ``terms`` the milliseconds of each unit alone. ``failure`` says why there is
    no compiled kernel, ``unknown`` what the figures do not contain.
    """

    triton: str
    torch: str = ""
    target: str = ""
    device: str = ""
    failure: str = ""
    registers: int | None = None
    spill_bytes: int | None = None
    shared_bytes: int | None = None
    occupancy: float | None = None
    limiter: str | None = None
    resident: int | None = None
    programs_per_sm: float | None = None
    instructions: Mapping[str, int] = field(default_factory=dict)
    loop_code: Mapping[str, int] = field(default_factory=dict)
    accesses: tuple[AccessSummary, ...] = ()
    products: tuple[ProductSummary, ...] = ()
    wavefronts: float | None = None
    predicted_ms: float | None = None
    terms: Mapping[str, float] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether anything is known of the compile, be it that it failed."""
        return bool(self.failure) or self.has_code or self.registers is not None or self.shared_bytes is not None

    @property
    def has_code(self) -> bool:
        """Whether instructions and traffic are known, not the resources alone."""
        return bool(self.instructions)


@dataclass(frozen=True, slots=True)
class Snapshots:
    """The snapshots of a store, by version and by the digest of the recorded launch."""

    database: Database

    def add(self, version_id: int, launch: str, snapshot: Snapshot) -> None:
        """Store the snapshot of a recorded launch in place of an earlier one of the same Triton."""
        insert = (
            "INSERT OR REPLACE INTO snapshots (version_id, launch, triton, snapshot, created) VALUES (?, ?, ?, ?, ?)"
        )
        text = canonical_json(asdict(snapshot))
        self.database.execute(insert, version_id, launch, snapshot.triton, text, time.time())

    def of_version(self, version_id: int) -> dict[tuple[str, str], Snapshot]:
        """Return the snapshots of a version by the digest of the launch and Triton's version."""
        query = "SELECT id, launch, triton, snapshot FROM snapshots WHERE version_id = ? ORDER BY id"
        rows = self.database.rows(query, (version_id,))
        return dict(self.database.read_rows("snapshots", rows, _keyed_snapshot))


def _keyed_snapshot(_: int, launch: str, triton: str, text: str) -> tuple[tuple[str, str], Snapshot]:
    require_type((launch, triton), tuple[str, str], "its launch and Triton")
    return (launch, triton), snapshot_from_jsonable(parse_json(text))


def snapshot_from_jsonable(value: Any) -> Snapshot:
    """Build a snapshot from JSON.

    Raises:
        MalformedData: not in the expected form.
    """
    with reading("the snapshot"):
        require_type(value, dict[str, Any], "the snapshot")
        snapshot = record_of_json(Snapshot, value, frozenset())
        require_type(snapshot, Snapshot, "the snapshot")
        return snapshot


@dataclass(frozen=True, slots=True)
class KeptExplanation:
    """An answer as data and as text, and the SHA-256 of each file that it follows from, by path."""

    data: Mapping[str, Any]
    text: str
    sources: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Explanations:
    """The kept explanations by the digest of what was asked, where, and under which versions."""

    database: Database

    def add(self, digest: str, explanation: KeptExplanation) -> None:
        """Store an explanation in place of an earlier one."""
        insert = "INSERT OR REPLACE INTO explanations (digest, explanation, created) VALUES (?, ?, ?)"
        self.database.execute(insert, digest, canonical_json(asdict(explanation)), time.time())

    def find(self, digest: str) -> tuple[KeptExplanation, float] | None:
        """Return an explanation and when it was made, in seconds since 1970; None if there is none."""
        rows = self.database.rows("SELECT id, explanation, created FROM explanations WHERE digest = ?", (digest,))
        return next(iter(self.database.read_rows("explanations", rows, _kept_explanation)), None)


def _kept_explanation(_: int, text: str, created: float) -> tuple[KeptExplanation, float]:
    with reading("the explanation"):
        explanation = record_of_json(KeptExplanation, parse_json(text), frozenset())
        require_type(explanation, KeptExplanation, "the explanation")
    require_moment(created, "created")
    return explanation, created
