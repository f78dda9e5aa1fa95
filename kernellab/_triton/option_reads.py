"""Which options of a launch Triton's frontend reads while it makes TTIR.

Most kernels have the same TTIR for every ``num_warps``, but one may ask: `triton.language.extra.cuda.num_warps`,
Gluon's layouts, a builtin of a package. No list of such functions would be complete, so reads are watched.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

_READS = "_kernellab_reads"


def watch_options(options: Any, names: Iterable[str]) -> tuple[Any, set[str]]:
    """An equal copy of a backend's options, and the set that takes each of ``names`` when it is read.

    Whatever looks at all options, such as a hash or a text of them, counts as a read of each.
    """
    reads: set[str] = set()
    plain: Any = type(options)
    watched: Any = object.__new__(_watched_class(plain, frozenset(names)))
    content = object.__getattribute__(watched, "__dict__")
    content.update(vars(options))
    content[_READS] = reads
    return watched, reads


@cache
def _watched_class(options: Any, names: frozenset[str]) -> type:
    def read(self: Any, name: str) -> Any:
        if name in names or name == "__dict__":
            content = object.__getattribute__(self, "__dict__")
            content[_READS].update({name} if name in names else names)
            if name == "__dict__":
                return {field: value for field, value in content.items() if field != _READS}
        return object.__getattribute__(self, name)

    watched: type = type(options.__name__, (options,), {"__getattribute__": read})
    return watched
