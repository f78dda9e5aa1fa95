"""Which options of a launch Triton's frontend reads while it makes TTIR.

Most kernels have the same TTIR for every ``num_warps``, but one may ask: `triton.language.extra.cuda.num_warps`,
Gluon's layouts, a builtin of a package. No list of such functions would be complete, so reads are watched.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def watch_options(options: Any, names: Iterable[str]) -> tuple[Any, set[str]]:
    """A copy of a backend's options, and the set that takes each of ``names`` when it is read, from a copy of it, too.

    Whatever looks at all options, such as a hash or a text of them, counts as a read of each.
    """
    plain: Any = type(options)
    watched_names, reads = frozenset(names), set[str]()

    def read(self: Any, name: str) -> Any:
        if name == "__dict__":
            reads.update(watched_names)
        elif name in watched_names:
            reads.add(name)
        return object.__getattribute__(self, name)

    # A class for each call: copies of the options are of it, and so their reads come into the same set.
    watched_class: Any = type(plain.__name__, (plain,), {"__getattribute__": read})
    watched: Any = object.__new__(watched_class)
    object.__getattribute__(watched, "__dict__").update(vars(options))
    return watched, reads
