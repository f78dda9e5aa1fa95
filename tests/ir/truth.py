"""What the kernels of the suite do to memory when they run: every address traced to its argument.

Run as a program, with ``TRITON_INTERPRET=1`` in its environment, this runs kernels in Triton's interpreter and prints
one JSON object: the name of each case to its facts, or to the error that its run raised.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

ELSEWHERE = "elsewhere"


class Recorder:
    """Stands in for Triton's C interpreter, which does every access, and notes whose memory each lane goes to."""

    def __init__(self, real: Any) -> None:
        self.real = real
        self.spans: Mapping[str, tuple[int, int]] = {}
        self.facts: set[tuple[str, str]] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def load(self, addresses: Any, mask: Any, other: Any, dtype: Any) -> Any:
        self._note("read", addresses, mask)
        return self.real.load(addresses, mask, other, dtype)

    def store(self, addresses: Any, value: Any, mask: Any) -> Any:
        self._note("write", addresses, mask)
        return self.real.store(addresses, value, mask)

    def atomic_rmw(self, operation: Any, addresses: Any, value: Any, mask: Any, sem: Any) -> Any:
        self._note("atomic", addresses, mask)
        return self.real.atomic_rmw(operation, addresses, value, mask, sem)

    def atomic_cas(self, addresses: Any, expected: Any, value: Any, sem: Any) -> Any:
        self._note("atomic", addresses, True)
        return self.real.atomic_cas(addresses, expected, value, sem)

    def _note(self, kind: str, addresses: Any, mask: Any) -> None:
        active = np.broadcast_to(np.asarray(mask, dtype=bool), np.shape(addresses))
        for address in np.unique(np.asarray(addresses, dtype=np.uint64)[active]).tolist():
            owners = [name for name, (first, end) in self.spans.items() if first <= address < end]
            self.facts.update((kind, name) for name in owners or [ELSEWHERE])


def run_case(recorder: Recorder, case: Any) -> dict[str, Any]:
    """Run one case and return its facts, or what went wrong."""
    from tests.ir.expected import spans, unwrapped

    arguments = case.arguments()
    recorder.spans, recorder.facts = spans(arguments), set()
    try:
        unwrapped(case.kernel)[case.grid,](**arguments, **case.constants())
    except Exception as error:  # noqa: BLE001 - comes back as data
        return {"error": f"{type(error).__name__}: {error}"}
    return {"facts": sorted(recorder.facts)}


def recorder_in_place() -> Recorder:
    """Put a recorder in the place of the C interpreter, for the rest of this process."""
    from triton.runtime import interpreter

    recorder = Recorder(interpreter._interpreter)
    interpreter._interpreter = recorder
    return recorder


def main() -> None:
    from tests.ir.expected import all_cases

    recorder = recorder_in_place()
    results = {case.name: run_case(recorder, case) for case in all_cases() if case.interpreted}
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
