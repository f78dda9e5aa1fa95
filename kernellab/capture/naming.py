"""The user's names: of tensors in a namespace, and of lines of code."""

from __future__ import annotations

import builtins
import inspect
import keyword
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kernellab.errors import user_frame

_CONTAINER_AT_MOST = 1000
_SHOWN_AT_MOST = 40
RESERVED_NAMES = frozenset(
    {
        *("torch", "triton", "tl", "os", "sys", "math", "hashlib", "contextlib", "statistics", "TensorDescriptor"),
        *("self", "device", "generator", "seed", "run", "make_inputs", "check", "main", "benchmark", "summary"),
        *("random_tensor", "listed_tensor", "launch", "side_table", "window", "layout_copy"),
        *("table_with_addresses", "grid_of"),
        *("placed", "room", "workspace", "require_workspace", "mark", "has_nan", "require", "require_size", "refuse"),
        *("read_problem", "shape_problem", "sharing_problem", "contents_of", "WORKSPACE_BYTES", "MARKS", "MEASURED"),
        *("CHECKED", "EXPECTED", "INTERPRETED", "RECORD"),
        *dir(builtins),
    }
)
"""Names that the module of a program uses itself; no value of a program gets one of them."""


def name_in(scope: Mapping[str, Any], tensor: Any) -> str:
    """Return the path of a tensor in a namespace: ``x``, ``weights["q"]``, ``model.linear.weight``; or ""."""
    return next((path for path, value in named_tensors(scope) if value is tensor), "")


def named_tensors(scope: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (path, tensor) for the tensors of a namespace, bare names first, then members of its containers."""
    own = [(name, value) for name, value in list(scope.items()) if not name.startswith("_") and name not in _HISTORY]
    yield from ((name, value) for name, value in own if hasattr(value, "untyped_storage"))
    for name, value in own:
        yield from ((path, member) for path, member in _members(name, value) if hasattr(member, "untyped_storage"))


def identifier(path: str) -> str:
    """Return a path as an identifier: ``weights_q`` for ``weights["q"]``."""
    bare = re.sub(r"\W+", "_", path).strip("_")
    return f"_{bare}" if bare[:1].isdigit() else bare


def unique(wanted: str, taken: Iterable[str]) -> str:
    """Return a name like ``wanted`` that is not taken, no keyword and no builtin."""
    names = {*taken, *RESERVED_NAMES, *keyword.kwlist}
    if wanted not in names:
        return wanted
    return next(name for i in range(1, 10**6) if (name := f"{wanted}_{i}") not in names)


def place_of(frame: Any) -> str:
    """Return the line that a frame is at, as ``In[3], line 2``; "" for None."""
    return "" if frame is None else f"{_file_label(frame.f_code.co_filename)}, line {frame.f_lineno}"


def place_of_user() -> str:
    """Return the line of the user's code that this call comes from."""
    return place_of(user_frame())


def locals_of(frame: Any) -> dict[str, Any]:
    """Return the variables of a frame, without keeping its tensors alive."""
    snapshot = frame.f_locals  # each access makes a new one
    variables = dict(snapshot)
    if sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        # A function's frame keeps the snapshot, and with it tensors that the user has deleted since.
        for name, value in variables.items():
            if hasattr(value, "untyped_storage"):
                snapshot.pop(name, None)
    return variables


def short_repr(value: Any) -> str:
    """Return the repr of a value, cut off where it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN_AT_MOST else f"{text[:_SHOWN_AT_MOST]}..."


def is_printing() -> bool:
    """Whether torch reads values only to print a tensor."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == "torch._tensor_str":
            return True
        frame = frame.f_back
    return False


_HISTORY = frozenset({"In", "Out", "exit", "quit", "get_ipython"})


def _members(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and len(value) <= _CONTAINER_AT_MOST:
        yield from ((f"{name}[{key!r}]", member) for key, member in list(value.items()))
    elif isinstance(value, list | tuple) and len(value) <= _CONTAINER_AT_MOST:
        yield from ((f"{name}[{index}]", member) for index, member in enumerate(value))
    elif hasattr(value, "named_parameters") and hasattr(value, "named_buffers") and not isinstance(value, type):
        yield from ((f"{name}.{path}", member) for path, member in value.named_parameters())
        yield from ((f"{name}.{path}", member) for path, member in value.named_buffers())
    elif hasattr(value, "__dict__") and not isinstance(value, type) and type(value).__module__ == "__main__":
        yield from ((f"{name}.{key}", member) for key, member in list(vars(value).items()))


def _file_label(file: str) -> str:
    """Return a file's name without its folder; for a cell of IPython, ``In[3]``."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    numbers = getattr(getattr(shell, "compile", None), "_filename_map", {})  # of cells, as IPython's tracebacks have
    return f"In[{numbers[file]}]" if file in numbers else re.split(r"[\\/]", file)[-1]
