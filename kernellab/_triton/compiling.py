"""One compile, inside a worker: Triton's stages, their times, and errors in the words of the user's source."""

from __future__ import annotations

import re
import subprocess
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton import knobs
from triton._C.libtriton import ir
from triton.compiler import make_backend
from triton.compiler.errors import CompilationError

from kernellab._triton.specialize import gpu_target, source_of
from kernellab.errors import CompileError, Place
from kernellab.source import Closure
from kernellab.target import Target

warnings.filterwarnings("ignore", message=".*TRITON_DEFAULT_FP_FUSION.*")


@dataclass(frozen=True, slots=True)
class Built:
    """What a full compile left: the files by Triton's names for them, and the seconds per stage."""

    files: Mapping[str, bytes]
    stage_seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Input:
    """A loaded kernel with its specialization."""

    function: Any
    signature: Mapping[str, Any]
    constants: Mapping[tuple[int, ...], Any]
    attributes: Mapping[tuple[int, ...], Any]
    options: Mapping[str, Any]
    target: Target

    def source(self) -> Any:
        return source_of(self.function, self.signature, self.constants, self.attributes)


def build(given: Input, closure: Closure) -> Built:
    """Compile to the binary.

    Raises:
        CompileError: with the line of the closure that is responsible, where the compiler tells.
    """
    times: dict[str, float] = {}

    def listener(*, times: Any, into: dict[str, float] = times, **_: Any) -> None:
        into["ast"] = times.ir_initialization / 1e6
        into.update({stage: microseconds / 1e6 for stage, microseconds in times.lowering_stages})

    with _fresh_cache(), translated_errors(closure, given.target), knobs.compilation.scope():
        knobs.compilation.listener = listener
        kernel = triton.compile(given.source(), target=gpu_target(given.target), options=dict(given.options))
        files = {name: Path(path).read_bytes() for name, path in kernel.metadata_group.items()}
    return Built(files, times)


def build_ttir(given: Input, closure: Closure) -> tuple[Any, Any]:
    """Compile to optimised TTIR only; returns the module and the context that it lives in."""
    target = gpu_target(given.target)
    backend = make_backend(target)
    with translated_errors(closure, given.target):
        options = backend.parse_options(dict(given.options))
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        codegen = backend.get_codegen_implementation(options)
        module = given.source().make_ir(target, options, codegen, backend.get_module_map(), context)
        stages: dict[str, Any] = {}
        backend.add_stages(stages, options, given.source().language)
        return stages["ttir"](module, {}), context


@contextmanager
def _fresh_cache() -> Iterator[None]:
    """Keep Triton's own cache out of it: its key lacks the file name that the debug info holds."""
    with tempfile.TemporaryDirectory(prefix="kernellab-") as folder, knobs.cache.scope():
        knobs.cache.dir = folder
        yield


@contextmanager
def translated_errors(closure: Closure, target: Target) -> Iterator[None]:
    try:
        yield
    except CompileError:
        raise
    except Exception as exc:
        raise compile_error(exc, closure, target) from exc


def compile_error(exc: BaseException, closure: Closure, target: Target) -> CompileError:
    """Return a compiler's exception as an error that points at the user's source.

    Triton wraps an error in a helper once per call; the innermost one that lies in the user's code is the place, and
    the innermost of all says what is wrong.
    """
    chain = list(_chain(exc))
    place = next((p for e in reversed(chain) if (p := _place(e, closure)) is not None), None)
    if place is None:
        entry = closure.functions[0]
        place = Place(entry.file, entry.first_line, 0, entry.text.splitlines()[0])
    message = _message(chain[-1])
    text = f"{closure.name} does not compile for {target}: {message}"
    return CompileError(text, place=place, detail=str(exc), kernel=closure.name)


def _chain(exc: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = exc
    while current is not None:
        yield current
        current = current.__cause__


def _place(exc: BaseException, closure: Closure) -> Place | None:
    if not isinstance(exc, CompilationError) or exc.src is None or exc.node is None:
        return None
    for function in closure.functions:
        if function.text.strip() == exc.src.strip():
            lines = function.text.splitlines()
            line = max(1, min(getattr(exc.node, "lineno", 1), len(lines)))
            column = getattr(exc.node, "col_offset", None)
            return Place(function.file, function.first_line + line - 1, column, lines[line - 1])
    return None


def _message(exc: BaseException) -> str:
    text = getattr(exc, "error_message", None) or str(exc) or type(exc).__name__
    if isinstance(exc, subprocess.SubprocessError) or "ptxas" in text.lower():
        said = re.search(r"\berror\s*:\s*(.+)", text) or re.search(r"\bfatal\s*:\s*(.+)", text)
        text = f"ptxas refused it: {said[1]}" if said else text
    if "PassManager::run failed" in text:
        text = "a compiler pass failed; the full detail names it."
    first = next((line.strip() for line in text.splitlines() if line.strip()), text)
    return first if first.endswith((".", "!", "?")) else f"{first}."
