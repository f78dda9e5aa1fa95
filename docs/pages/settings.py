"""The page of the environment variables, from the module that reads them."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import kernellab.settings
from kernellab.settings import Settings, read_settings

MEANINGS = {
    "KERNELLAB_STORE": "The folder of everything that the lab keeps; `:memory:` keeps nothing.",
    "KERNELLAB_TARGET": "What is compiled for where nothing else is named, such as `cuda:80` or `hip:gfx942`.",
    "KERNELLAB_WORKERS": "How many compile workers there are.",
    "KERNELLAB_TIMEOUT": "Seconds after which a job in a worker is stopped.",
    "KERNELLAB_CACHE_MB": "How large the folder of compiled kernels may grow, and the history once more.",
    "KERNELLAB_ISOLATE": "`0` launches on a GPU without a trial launch in another process.",
    "KERNELLAB_PROGRESS": "`0` shows no live progress and each card once, for notebooks whose outputs are compared.",
    "KERNELLAB_PREDICT": "`0` leaves the predicted times of cards and sliders out, which take up to a second of CPU.",
}


def variables() -> list[str]:
    """Return the variables that the settings read."""
    tree = ast.parse(inspect.getsource(kernellab.settings))
    texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return sorted({text for text in texts if re.fullmatch(r"KERNELLAB_[A-Z_]+", text)})


def page() -> str:
    """Return the page."""
    rows = [f"| `{name}` | {MEANINGS[name]} | {_default(name)} |" for name in variables()]
    head = [
        "# Settings",
        "",
        "Environment variables, read when a lab is made. What a call or a magic says wins over them.",
        "",
        "| variable | meaning | without it |",
        "| --- | --- | --- |",
    ]
    return "\n".join([*head, *rows, ""])


def _default(name: str) -> str:
    plain: Settings = read_settings({})
    return {
        "KERNELLAB_STORE": f"`{_at_home(plain.store)}`",
        "KERNELLAB_TARGET": "the GPU if there is one, else `cuda:90`",
        "KERNELLAB_WORKERS": "one per core, up to 16",
        "KERNELLAB_TIMEOUT": f"{plain.timeout_s:g}",
        "KERNELLAB_CACHE_MB": f"{plain.cache_bytes / 2**20:g}",
        "KERNELLAB_ISOLATE": "`1`" if plain.isolate else "`0`",
        "KERNELLAB_PROGRESS": "`1`" if plain.progress else "`0`",
        "KERNELLAB_PREDICT": "`1`" if plain.predict else "`0`",
    }.get(name, "")


def _at_home(path: Path) -> str:
    return f"~/{path.relative_to(Path.home())}" if path.is_relative_to(Path.home()) else str(path)
