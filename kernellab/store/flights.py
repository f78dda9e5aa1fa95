"""First flights that went well, so that a new session need not repeat them."""

from __future__ import annotations

import time
from dataclasses import astuple, dataclass

from kernellab.store.database import Database


@dataclass(frozen=True, slots=True)
class GoodFlight:
    """What a good flight holds for: the compiled kernel, the model of the GPU and its driver, and the launch.

    ``launch`` is a hash of the grid, and of sizes, layouts and numbers of the arguments.
    """

    digest: str
    device: str
    driver: str
    launch: str


@dataclass(frozen=True, slots=True)
class FlightLog:
    """The good flights of all sessions."""

    database: Database

    def add(self, flight: GoodFlight) -> None:
        values = (*astuple(flight), time.time())
        self.database.write(
            lambda cursor: cursor.execute(
                "INSERT OR IGNORE INTO flights (digest, device, driver, launch, created) VALUES (?, ?, ?, ?, ?)", values
            )
        )

    def __contains__(self, flight: GoodFlight) -> bool:
        query = "SELECT 1 FROM flights WHERE digest = ? AND device = ? AND driver = ? AND launch = ?"
        return bool(self.database.rows(query, astuple(flight)))
