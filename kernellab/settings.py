"""What a user sets from outside: the only reader of the environment."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernellab.errors import UsageError

_COMPILER_PREFIXES = ("TRITON_", "MLIR_", "LLVM_", "NVPTX_", "AMDGCN_", "DISABLE_", "ALLOW_", "USE_IR_LOC")
_INTERPRETING = "TRITON_INTERPRET"
_ON, _OFF = frozenset({"1", "yes", "on", "true"}), frozenset({"0", "no", "off", "false"})
_MOST_WORKERS = 1024
_MOST_SECONDS = 10**6  # as for the time limit of a call


@dataclass(frozen=True, slots=True)
class Settings:
    """Frozen settings, handed down from the `Lab`.

    ``store`` is the folder of everything persistent (``:memory:``: nothing is), ``target`` what is compiled for where
    none is named (None: the GPU if there is one), ``compile_workers`` the size of the compile pool, ``timeout_s`` the
    limit of a job, ``isolate`` whether first launches on a GPU are tried in a process of their own, ``progress``
    whether what takes its time shows how far it has come, ``predict`` whether cards and sliders predict times for a GPU
    that is not here. ``cache_bytes`` bounds what can be made again: compiled kernels, and as much once more for rows of
    the history; kernels are never deleted for it. ``notebook`` is the file name of the notebook that this process runs,
    where Jupyter says it.
    """

    store: Path
    target: str | None = None
    compile_workers: int = 1
    timeout_s: float = 60.0
    isolate: bool = True
    progress: bool = True
    predict: bool = True
    cache_bytes: int = 4 * 2**30
    notebook: str = ""


def in_memory(store: str | Path | None) -> bool:
    """Whether a store is named ``:memory:``, which keeps nothing."""
    return str(store) == ":memory:"


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Return the settings that the environment makes.

    The variables are ``KERNELLAB_STORE``, ``_TARGET``, ``_WORKERS``, ``_TIMEOUT``, ``_CACHE_MB``, ``_ISOLATE``,
    ``_PROGRESS`` and ``_PREDICT``.

    Raises:
        UsageError: a variable has a value that it cannot have.
    """
    environ = os.environ if environ is None else environ
    store, session = environ.get("KERNELLAB_STORE"), environ.get("JPY_SESSION_NAME", "")
    return Settings(
        store=Path(store).expanduser() if store else _default_store(),
        target=environ.get("KERNELLAB_TARGET") or None,
        compile_workers=_count(environ, "KERNELLAB_WORKERS", min(16, len(os.sched_getaffinity(0)))),
        timeout_s=_seconds(environ, "KERNELLAB_TIMEOUT", 60.0),
        cache_bytes=int(_number(environ, "KERNELLAB_CACHE_MB", 4096) * 2**20),
        isolate=_is_on(environ, "KERNELLAB_ISOLATE"),
        progress=_is_on(environ, "KERNELLAB_PROGRESS"),
        predict=_is_on(environ, "KERNELLAB_PREDICT"),
        notebook=Path(session).name if session.endswith(".ipynb") else "",  # a console has none
    )


def compiler_environment() -> tuple[tuple[str, str], ...]:
    """Return the variables that Triton and LLVM may read while they compile, sorted by name.

    `triton.knobs` that are set in a program arrive here too: Triton enters them into the environment.
    """
    return tuple(sorted((name, value) for name, value in os.environ.items() if _reaches_the_compiler(name)))


def visible_devices() -> tuple[str, ...]:
    """Return the variables of the environment that choose the GPUs of this process."""
    return tuple(os.environ.get(f"{vendor}_VISIBLE_DEVICES", "") for vendor in ("CUDA", "HIP", "ROCR"))


def set_variables(variables: Mapping[str, str]) -> None:
    """Set variables of the environment of this process and of what it starts."""
    os.environ.update(variables)


def take_compiler_environment(variables: Iterable[tuple[str, str]]) -> None:
    """Make this process's compiler variables those given: for a worker, which inherited them as they once were."""
    wanted = dict(variables)
    for name in [name for name in os.environ if _reaches_the_compiler(name) and name not in wanted]:
        del os.environ[name]
    os.environ.update(wanted)


def child_environment(**extra: str) -> dict[str, str]:
    """Return this process's environment with ``extra`` set, for a child process; it interprets only where that says."""
    return {**{name: value for name, value in os.environ.items() if name != _INTERPRETING}, **extra}


def is_interpreting() -> bool:
    """Whether ``TRITON_INTERPRET`` is on, so that Triton makes functions of its interpreter of kernels."""
    return os.environ.get(_INTERPRETING, "").lower() in _ON | {"y"}  # as Triton reads it


def set_interpreting_aside() -> str | None:
    """Take ``TRITON_INTERPRET`` out of the environment where it is on; return its value, or None where it is not."""
    return os.environ.pop(_INTERPRETING) if is_interpreting() else None


def restore_interpreting(value: str | None) -> None:
    """Put a ``TRITON_INTERPRET`` that was set aside back, unless another one was set meanwhile."""
    if value is not None:
        os.environ.setdefault(_INTERPRETING, value)


def step_summary_path() -> Path:
    """Return the file that GitHub shows as the summary of a step of a job.

    Raises:
        UsageError: ``GITHUB_STEP_SUMMARY`` is not set.
    """
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        raise UsageError("--step-summary: GITHUB_STEP_SUMMARY is not set; a job of GitHub sets it. Use --summary FILE.")
    return Path(path)


def wants_colour(environ: Mapping[str, str] | None = None) -> bool:
    """Whether a terminal takes colour: not a dumb one, nor with ``NO_COLOR`` (https://no-color.org)."""
    environ = os.environ if environ is None else environ
    return not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def _reaches_the_compiler(name: str) -> bool:
    return name.startswith(_COMPILER_PREFIXES) and name != _INTERPRETING  # which decides at import


def _default_store() -> Path:
    from platformdirs import user_data_path  # keeps `import kernellab` light

    return user_data_path("kernellab", appauthor=False)


def _is_on(environ: Mapping[str, str], name: str) -> bool:
    text = environ.get(name) or "1"
    if text.lower() not in _ON | _OFF:
        raise UsageError(f"{name} is {text!r}; expected 1 or 0, yes or no, on or off, true or false.")
    return text.lower() in _ON


def _number(environ: Mapping[str, str], name: str, default: float) -> float:
    text = environ.get(name)
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise UsageError(f"{name} is {text!r}; expected a positive number.")
    return value


def _seconds(environ: Mapping[str, str], name: str, default: float) -> float:
    value = _number(environ, name, default)
    if value > _MOST_SECONDS:
        raise UsageError(f"{name} is {environ[name]!r}; expected seconds, {_MOST_SECONDS:,} at most.")
    return value


def _count(environ: Mapping[str, str], name: str, default: int) -> int:
    value = float(_number(environ, name, default))
    if not value.is_integer() or value > _MOST_WORKERS:
        raise UsageError(f"{name} is {environ[name]!r}; expected a whole number from 1 to {_MOST_WORKERS:,}.")
    return int(value)
