"""One compile, inside a worker: Triton's stages, their times, and errors in the words of the user's source."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import stat
import subprocess
import textwrap
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from dataclasses import dataclass
from typing import Any

import triton
from triton import knobs
from triton._C.libtriton import get_cache_invalidating_env_vars, ir
from triton.compiler import CompiledKernel, make_backend
from triton.compiler.compiler import parse
from triton.compiler.errors import CompilationError, CompileTimeAssertionFailure

from kernellab._triton.mlir import flattened_parameters, graph_of_module
from kernellab._triton.specialize import RUN_KNOBS, Specialization, source_of
from kernellab._triton.targets import gpu_target
from kernellab.advice import in_plain_words
from kernellab.errors import CompileError, Place
from kernellab.ir.graph import Graph, Location
from kernellab.ir.lines import location_of_line
from kernellab.source import INTEGER_OPTIONS, Closure, returned_value
from kernellab.target import Target

warnings.filterwarnings("ignore", message=".*TRITON_DEFAULT_FP_FUSION.*")

_MAX_FILE_NAME = 150
_MODE, _CASTS = "fpsan", "fpsan_homomorphic_casts"
_GRAPH_STAGES = ("ttir", "ttgir")  # of Triton, of Gluon
_LOG_BYTES = 16_000


@dataclass(frozen=True, slots=True)
class CompileOutput:
    """The result of a full compile: files by Triton's names for them, the graph of the first stage, seconds per stage.

    ``ptxas_log`` is the output of ptxas.
    """

    files: Mapping[str, bytes]
    graph: Graph
    stage_seconds: Mapping[str, float]
    ptxas_log: str = ""


def build(function: Any, special: Specialization, target: Target, closure: Closure) -> CompileOutput:
    """Compile to the binary, stage by stage.

    The steps are those of `triton.compile` without its cache: the key of that hashes the whole compiler, and lacks the
    file name in the debug info.

    Raises:
        CompileError: with the line of the closure that the compiler blames, if any.
    """
    clock = _Clock()
    with translate_errors(closure, target):
        lowering = _begin_lowering(function, special, target)
        clock.lap("ast")
        metadata = _metadata(lowering.options, target)
        name = lowering.name[:_MAX_FILE_NAME]
        files = {f"{name}.source": _file_content(lowering.module)}
        module, log, graph = lowering.module, io.StringIO(), None
        for stage, lower in lowering.stages.items():
            assembling = stage == "cubin"
            with _collect_ptxas_log() if assembling else nullcontext(log) as log, _note_ptxas_lines(module, assembling):
                module = _override_module(metadata, stage, lowering.context) or lower(module, metadata)
            files[f"{name}.{stage}"] = _file_content(module)
            clock.lap(stage)
            if graph is None and stage in _GRAPH_STAGES:  # later stages change the module itself
                text = files[f"{name}.{stage}"].decode()
                graph = graph_of_module(module, lowering.context, flattened_parameters(special.signature), text)
                clock.skip()
        assert graph is not None, "a backend has one of these stages"
        files[f"{name}.json"] = json.dumps(metadata, default=vars).encode()
    return CompileOutput(files, graph, clock.seconds, log.getvalue())


def notify_listener(src: Any, files: Mapping[str, str], seconds: Mapping[str, float], digest: str, hit: bool) -> None:
    """Call Triton's compile listener, if set, for a compile in a worker; a cache ``hit`` took no time.

    Follows `triton.compile`, which counts microseconds.
    """
    listener = knobs.compilation.listener
    if listener is None:
        return
    stages = {stage: 0 if hit else int(elapsed * 1e6) for stage, elapsed in seconds.items()}
    times = knobs.CompileTimes(stages.pop("ast", 0), list(stages.items()), 0)
    metadata = CompiledKernel(src, files, digest).metadata._asdict()
    listener(src=src, metadata=metadata, metadata_group=dict(files), times=times, cache_hit=hit)


def build_ttir(function: Any, special: Specialization, target: Target, closure: Closure) -> tuple[Any, Any]:
    """Compile to optimised TTIR only, for Gluon to TTGIR; returns the module and its context."""
    with translate_errors(closure, target):
        lowering = _begin_lowering(function, special, target)
        return lowering.lower_to_graph(lowering.module, _metadata(lowering.options, target)), lowering.context


def build_ttir_for_any_count(
    function: Any, special: Specialization, target: Target, closure: Closure
) -> tuple[Any, Any, bool]:
    """As `build_ttir`, and whether the TTIR is the same for all values of the `INTEGER_OPTIONS`.

    It is where none of them was read on the way. Gluon's stage has its own ways to the options, and always counts.
    """
    if function.is_gluon():
        return *build_ttir(function, special, target, closure), False
    with translate_errors(closure, target):
        lowering = _begin_lowering(function, special, target, watched=INTEGER_OPTIONS)
        metadata = _metadata(lowering.options, target)
        unwatched = {name: value for name, value in metadata.items() if name not in INTEGER_OPTIONS}
        module = lowering.lower_to_graph(lowering.module, unwatched)
    return module, lowering.context, not lowering.reads


def raw_module(function: Any, special: Specialization, target: Target) -> tuple[Any, Any, Callable[[Any], Any]]:
    """The raw TTIR of a jit function: the module, its context, and the function that runs the ttir stage on it.

    Errors of the compiler come through as Triton raises them.
    """
    lowering = _begin_lowering(function, special, target)
    return lowering.module, lowering.context, lambda raw: lowering.lower_to_graph(raw, {})


@dataclass(slots=True)
class _Lowering:
    """A raw TTIR module with the kernel's name, the module's context and the remaining stages.

    ``reads`` takes the watched options that its frontend and stages read.
    """

    name: str
    module: Any
    context: Any
    stages: dict[str, Any]
    options: Any
    reads: set[str]

    def lower_to_graph(self, module: Any, metadata: dict[str, Any]) -> Any:
        """The module as optimised TTIR; of Gluon, as TTGIR with its layouts resolved."""
        for stage, lower in self.stages.items():
            module = lower(module, metadata)
            if stage in _GRAPH_STAGES:
                break
        return module


@contextmanager
def _collect_ptxas_log() -> Iterator[io.StringIO]:
    """Collect the log of ptxas, which Triton prints on standard output."""
    log, is_wanted = io.StringIO(), knobs.nvidia.dump_ptxas_log
    with knobs.nvidia.scope():
        knobs.nvidia.dump_ptxas_log = True
        with redirect_stdout(log):
            yield log
    if is_wanted:
        print(log.getvalue())


class _Clock:
    """Seconds since the last lap, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = now - self._last
        self._last = now

    def skip(self) -> None:
        """Leave the time since the last lap out of all stages."""
        self._last = time.perf_counter()


def _begin_lowering(function: Any, special: Specialization, target: Target, watched: Iterable[str] = ()) -> _Lowering:
    gpu = gpu_target(target)
    backend = make_backend(gpu)
    parsed = backend.parse_options(dict(special.options))
    options, reads = watch_options(parsed, watched) if watched else (parsed, set[str]())
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    codegen = backend.get_codegen_implementation(options)
    source = source_of(function, special)
    module = source.make_ir(gpu, options, codegen, backend.get_module_map(), context)
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, source.language)
    return _Lowering(str(source.name), module, context, stages, parsed, reads)


def watch_options(options: Any, names: Iterable[str]) -> tuple[Any, set[str]]:
    """A copy of a backend's options, and the set that takes each of ``names`` when it is read, from a copy of it, too.

    Most kernels have the same TTIR for every ``num_warps``, but one may ask: `triton.language.extra.cuda.num_warps`,
    Gluon's layouts, a builtin of a package. No list of such functions would be complete, so reads are watched. Whatever
    looks at all options, such as a hash or a text of them, counts as a read of each.
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


def _metadata(options: Any, target: Target) -> dict[str, Any]:
    """The metadata that Triton stores with a binary; the stages add to it."""
    versions = {**get_cache_invalidating_env_vars(), "triton_version": triton.__version__}
    return {"hash": "", "target": gpu_target(target), **options.__dict__, **versions}


def _override_module(metadata: Mapping[str, Any], stage: str, context: Any) -> Any:
    """The module of the file that the option ``ir_override`` names for a stage, or None."""
    path = metadata.get("ir_override")
    return parse(path, stage, context) if path and str(path).endswith(f".{stage}") else None


def _file_content(module: Any) -> bytes:
    return module if isinstance(module, bytes) else str(module).encode()


@contextmanager
def translate_errors(closure: Closure, target: Target) -> Iterator[None]:
    """Translate the compiler's exceptions into a `CompileError` that points into the closure."""
    begin = _size_of_log()
    try:
        yield
    except CompileError:
        raise
    except Exception as exc:
        raise compile_error(exc, closure, target, _log_from(begin)) from exc


def compile_error(exc: BaseException, closure: Closure, target: Target, log: str = "") -> CompileError:
    """A compiler's exception as a `CompileError` that points at the user's source.

    Triton wraps an error in a helper once per call: the innermost one in the user's code gives the place, the innermost
    of all the message. MLIR's exception is empty; its message is in ``log``, the standard error of the compile. The
    places of an error of ptxas are its notes.
    """
    chain = [exc]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    place = next((p for e in reversed(chain) if (p := _place(e, closure)) is not None), None)
    message = _message(chain[-1])
    if place is None:
        entry = closure.functions[0]
        first = Place(entry.file, entry.first_line, 0, entry.text.splitlines()[0])
        notes = "\n".join(getattr(exc, "__notes__", ()))
        diagnostic = _diagnostic(log if isinstance(exc, RuntimeError) else notes, closure)
        place, message = _return_place(exc, closure) or diagnostic or (first, message)
    text = f"{closure.name} does not compile for {target}: {message}"
    return CompileError(text, place=place, detail=f"{exc}\n{log}".rstrip(), kernel=closure.name)


def _size_of_log() -> int | None:
    """The present size of standard error in bytes; None where that is not a regular file."""
    with suppress(OSError):
        status = os.fstat(2)
        return status.st_size if stat.S_ISREG(status.st_mode) else None
    return None


def _log_from(begin: int | None) -> str:
    with suppress(OSError):  # standard error may be open for writing only
        return "" if begin is None else os.pread(2, _LOG_BYTES, begin).decode(errors="replace")
    return ""


_DIAGNOSTIC = re.compile(
    r"^(?P<file>.+?):(?P<line>\d+):(?P<column>\d+): error: (?P<text>.*(?:\n(?![ \t]|.+?:\d+:\d+: ).+)*)", re.M
)


def _diagnostic(log: str, closure: Closure) -> tuple[Place, str] | None:
    """The place and text of the first MLIR error in the user's source; None where there is none."""
    for match in _DIAGNOSTIC.finditer(log):
        number = int(match["line"])
        for function in closure.functions:
            lines = function.text.splitlines()
            if match["file"] == function.file and 0 <= number - function.first_line < len(lines):
                line = lines[number - function.first_line]
                message, _, _ = match["text"].partition(f"\n{line}\n")  # MLIR prints the line, and modules below it
                place = Place(function.file, number, int(match["column"]) - 1, line)
                return place, in_plain_words(" ".join(message.split()))
    return None


_PTXAS_ERROR = re.compile(r", line (\d+); error\s*: (.+)")


@contextmanager
def _note_ptxas_lines(ptx: Any, is_assembled: bool) -> Iterator[None]:
    """Add a note to an error of ptxas: the source lines of each refused line of PTX, helpers before callers."""
    try:
        yield
    except Exception as exc:
        for number, text in _PTXAS_ERROR.findall(str(exc)) if is_assembled else ():
            place: Location | None = location_of_line(str(ptx), int(number))
            while place is not None:
                where = f"{place.file}:{place.line or 0}:{(place.column or 0) + 1}"
                exc.add_note(f"{where}: error: ptxas refused it: {text}")
                place = place.caller
        raise


def _return_place(exc: BaseException, closure: Closure) -> tuple[Place, str] | None:
    """The place of a ``return`` with a value in a kernel, for which a later pass aborts; None where there is none."""
    entry = closure.functions[0]
    returned = returned_value(entry.text) if "PassManager::run failed" in str(exc) else None
    if returned is None:
        return None
    line = entry.text.splitlines()[returned.lineno - 1]
    place = Place(entry.file, entry.first_line + returned.lineno - 1, returned.col_offset, line)
    return place, in_plain_words("a kernel returns a value")


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


# Triton looks the type of a called function up by its mangled name, before that function is finished.
_RECURSIVE = re.compile(r"KeyError\('(?:[\w.]+\.)?(\w+?)__[^']*'\)")


def _message(exc: BaseException) -> str:
    text = getattr(exc, "error_message", None) or str(exc) or type(exc).__name__
    if isinstance(exc, CompileTimeAssertionFailure) and not exc.error_message:
        text = "static_assert failed."
    if isinstance(exc, subprocess.SubprocessError) or "ptxas" in text.lower():
        reason = re.search(r"\berror\s*:\s*(.+)", text) or re.search(r"\bfatal\s*:\s*(.+)", text)
        text = f"ptxas refused it: {reason[1]}" if reason else text
    if recursive := _RECURSIVE.match(text):
        text = f"{recursive[1]} calls itself; Triton compiles no recursion. Write a loop, or count down a constexpr."
    if "PassManager::run failed" in text:
        text = "a compiler pass failed; the full detail names it."
    return in_plain_words(next((line for line in text.splitlines() if line.strip()), text), _names_in(exc))


def _names_in(exc: BaseException) -> set[str]:
    """The names in the source of the kernel that a compile error is about."""
    source = getattr(exc, "src", None)
    nodes = ast.walk(ast.parse(textwrap.dedent(source))) if source else ()
    return {str(getattr(n, "id", getattr(n, "arg", None))) for n in nodes if isinstance(n, ast.Name | ast.arg)}


def sanitizer_problem(target: Target) -> str:
    """The reason why kernels for a target cannot be compiled with the sanitizer; "" where they can."""
    if _CASTS not in RUN_KNOBS:
        return f"Triton {triton.__version__} has no floating-point sanitizer as of 3.9"
    return "" if target.backend == "cuda" else f"the sanitizer of floats is used on NVIDIA GPUs, not on {target}"


@contextmanager
def sanitized_floats() -> Iterator[None]:
    """Compile what is launched inside a with statement with the sanitizer, in all threads of the process.

    Casts are homomorphic: a sum of casts is the cast of the sum.
    """
    with knobs.compilation.scope():
        knobs.compilation.instrumentation_mode = _MODE
        if _CASTS in RUN_KNOBS:
            setattr(knobs.compilation, _CASTS, True)
        yield
