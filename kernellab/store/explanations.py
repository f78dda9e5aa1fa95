"""Kept answers of ``kernellab explain``, which hold as long as the files that they were made from are the same."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kernellab.source import parse_json, require, require_type
from kernellab.store.database import Database
from kernellab.store.decoding import canonical_json, require_moment


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
    value = parse_json(text)
    require_type(value, dict, "the explanation")
    fields = {"data": dict, "text": str, "sources": dict}
    require(set(value) == set(fields), "its fields", sorted(value), "data, text and sources")
    for name, kind in fields.items():
        require_type(value[name], kind, name)
    require_moment(created, "created")
    return KeptExplanation(**value), created
