"""A process that writes COUNT rows to the store in FOLDER, and prints each one once it is committed.

::

    python store_writer.py FOLDER MARK COUNT
"""

from __future__ import annotations

import sys
from pathlib import Path

from kernellab.source import Closure, Function
from kernellab.store import Measurement, Store


def main(folder: str, mark: str, count: str) -> None:
    store = Store(Path(folder))
    closure = Closure((Function("k", "jit", "def k():\n    pass\n", "cell:k", 1, False, ()),))
    version = store.add(closure, mark, mark)
    for number in range(int(count)):
        row = Measurement(f"{mark}{number}", {"BLOCK": number}, "none", "ok", float(number))
        store.history.add_measurements(version.id, [row])
        print(row.key, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
