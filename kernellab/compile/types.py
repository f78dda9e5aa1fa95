"""Compiling a kernel: what is asked for, made of a kernel and its arguments, and what comes back.

The work itself is done by a worker process, in `kernellab.compile.worker`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernellab.compile import DIFF_STAGES, STAGES
from kernellab.compile.argument_values import ArgumentValue
from kernellab.compile.disassembly import disassembly_of
from kernellab.display import Displayable, Drawable
from kernellab.errors import StoreError, UsageError, choice_message
from kernellab.settings import compiler_environment
from kernellab.source import INTEGER_OPTIONS, Binding, Closure, constant_text, jsonable, portable_type
from kernellab.target import BlockNeeds, Target, limits_of, occupancy
from kernellab.workers.forks_and_interrupts import cached_property

if TYPE_CHECKING:
    from kernellab._triton.specialize import Specialization
    from kernellab.ir.effects import Effects
    from kernellab.ir.graph import Graph, StoredGraph

SCHEMA = 3
# Eight are portable; H100 and B200 take 16, which Triton's launcher opts in to (CUDA Programming Guide, clusters).
_MOST_BLOCKS_OF_CLUSTER = 16


@dataclass(frozen=True)
class CompileJob:
    """One kernel, specialized, for one target. Plain data, for a worker of any process.

    ``signature`` gives the Triton type of each parameter (nested tuples for tuples), ``constants`` and ``attributes``
    go by index path, ``options`` are the backend's; ``symbol`` is the name of the compiled kernel. ``variables`` are
    those of the environment that the compiler may read, as they were when the job was made.
    """

    closure: Closure
    symbol: str
    signature: tuple[tuple[str, Any], ...]
    constants: tuple[tuple[tuple[int, ...], Binding], ...]
    attributes: tuple[tuple[tuple[int, ...], Any], ...]
    options: tuple[tuple[str, Any], ...]
    target: Target
    variables: tuple[tuple[str, str], ...] = ()

    @cached_property
    def digest(self) -> str:
        """The hash that names the result: equal jobs have equal binaries and debug info."""
        return self._digest_for(self.options)

    @cached_property
    def digest_for_any_count(self) -> str:
        """The hash of what is the same for all values of the `INTEGER_OPTIONS`, such as ``num_warps``."""
        return self._digest_for([*(each for each in self.options if each[0] not in INTEGER_OPTIONS), "any count"])

    def _digest_for(self, options: Sequence[object]) -> str:
        import triton

        from kernellab._triton.specialize import compiler_variables  # keeps `import kernellab` light

        fields = {
            "schema": SCHEMA,
            "triton": str(triton.__version__),
            "closure": self.closure.compile_digest,
            "symbol": self.symbol,
            "signature": jsonable(self.signature),
            "constants": jsonable(self.constants),
            "attributes": jsonable(self.attributes),
            "options": jsonable(tuple(options)),
            "target": str(self.target),
            "variables": compiler_variables(),
            "override": _override_digest(dict(self.options).get("ir_override")),
        }
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def _override_digest(path: str | None) -> str:
    """Return a hash of the file that the option ``ir_override`` names; its content counts and not its name."""
    if not path:
        return ""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as exc:
        raise UsageError(f"ir_override is {path!r}, which cannot be read: {exc.strerror or exc}.") from exc


def compile_job(function: Any, target: Target, args: tuple[Any, ...], meta: Mapping[str, Any]) -> CompileJob:
    """Return the job of compiling a jit function for these arguments.

    Raises:
        LaunchError, UsageError: the arguments or options do not fit the kernel.
        SourceError: its source cannot be found.
    """
    from kernellab._triton.specialize import specialize  # keeps `import kernellab` light

    return job_of(function, target, specialize(function, target, args, meta))


def job_of(function: Any, target: Target, special: Specialization, closure: Closure | None = None) -> CompileJob:
    """Return the job for a specialization that Triton has already computed.

    ``closure`` is that of the function, where it was found before with constants that bring no functions along.

    Raises:
        UsageError: an option that counts something is not an integer.
    """
    from kernellab._triton.closure import closure_of, plain_bindings, require_sendable  # reading one loads no Triton
    from kernellab._triton.specialize import kernel_name, require_options

    require_options(function.__name__, special.options)
    paths = sorted(special.constants)
    values = tuple(special.constants[path] for path in paths)
    bindings = None if closure is None else plain_bindings(values)
    if closure is None or bindings is None:
        closure, bindings = closure_of(function, values)
    names = [function.arg_names[path[0]] + "".join(f"[{index}]" for index in path[1:]) for path in paths]  # "pair[1]"
    require_sendable(function.__name__, zip(names, bindings, strict=True))
    return CompileJob(
        closure=closure,
        symbol=kernel_name(function, dict(special.constants), dict(special.signature)),
        signature=tuple((name, portable_type(kind)) for name, kind in special.signature.items()),
        constants=tuple(zip(paths, bindings, strict=True)),
        attributes=tuple(sorted((path, tuple(map(tuple, value))) for path, value in special.attributes.items())),
        options=tuple(sorted(special.options.items())),
        target=target,
        variables=compiler_environment(),
    )


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources of one block of a compiled kernel, and whether the target provides them.

    A field is None if it is unknown or does not exist on the target. ``registers`` are those of a
    thread; on AMD, its vector registers, of which ``accumulation_registers`` are AGPRs. ``stack_bytes`` is the stack of
    a thread, as a loaded kernel reports it (``n_spills`` x 4; AMD's scratch), and ``spill_bytes`` what of it holds
    spilled registers. ``shared_bytes`` is static plus dynamic shared memory (AMD's LDS), ``static_shared_bytes`` the
    static part, which inline assembly may declare. ``occupancy`` is the theoretical share of resident warps, from 0 to
    1, and ``limiter`` what bounds it: ``registers``, ``scalar registers``, ``shared memory``, ``threads`` or
    ``blocks``. Where ``fits`` is False, ``why_not`` gives the number and the limit. ``scalar_registers`` are those of
    a wave, ``scalar_spills`` how many of them are kept in lanes of vector registers or in scratch.
    ``tensor_memory_columns`` are those of Blackwell's tensor memory that a block allocates.
    """

    registers: int | None
    spill_bytes: int | None
    stack_bytes: int | None
    shared_bytes: int
    threads: int
    occupancy: float | None
    limiter: str | None
    fits: bool
    why_not: str | None = None
    static_shared_bytes: int | None = None
    accumulation_registers: int | None = None
    scalar_registers: int | None = None
    scalar_spills: int | None = None
    tensor_memory_columns: int | None = None


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a specialized kernel.

    ``type`` is Triton's: ``*fp32``, ``i32``, ``constexpr``, ``tensordesc<fp16[16, 32]>``. ``specialization`` says in
    words what Triton assumed of the argument: ``divisible by 16``, ``1``, the value of a constexpr, or "".
    """

    name: str
    type: str
    specialization: str


@dataclass(frozen=True)
class Compiled(Drawable):
    """A kernel compiled for one target with one specialization and one set of options.

    ``folder`` holds Triton's files, under its names: a text for each of ``ttir``, ``ttgir``,
    ``llir`` and ``ptx`` or ``amdgcn``, the binary, and its metadata. ``stage_seconds`` are the compile times of the
    stages, ``seconds`` that of the whole; with ``from_cache`` they are those of an earlier compile.
    ``labels`` map the files in locations to the user's names. ``arguments`` are those that `Lab.compile` was called
    with, by name; of a kernel that a launch compiled, the launch has them.
    """

    kernel: str
    target: Target
    parameters: tuple[Parameter, ...]
    options: Mapping[str, Any]
    resources: Resources
    seconds: float
    stage_seconds: Mapping[str, float]
    effects: Effects
    stored_graph: StoredGraph = field(repr=False, compare=False)
    folder: Path
    digest: str
    labels: tuple[tuple[str, str], ...] = ()
    from_cache: bool = False
    arguments: Mapping[str, ArgumentValue] = field(default_factory=dict)

    @property
    def graph(self) -> Graph:
        """The dataflow graph of the TTIR; of Gluon, of the TTGIR."""
        return self.stored_graph.graph

    @cached_property
    def stages(self) -> Mapping[str, str]:
        """The text of each stage, from ``ttir`` down to ``ptx`` or ``amdgcn``."""
        with self._reading():
            files = {path.suffix[1:]: path for path in sorted(self.folder.iterdir())}
            return {stage: self._relabel(files[stage].read_text()) for stage in STAGES if stage in files}

    @property
    def ttir(self) -> str:
        """The Triton IR, optimised."""
        return self._stage("ttir")

    @property
    def ttgir(self) -> str:
        """The Triton IR with layouts on the threads of a GPU."""
        return self._stage("ttgir")

    @property
    def llir(self) -> str:
        """The LLVM IR."""
        return self._stage("llir")

    @property
    def ptx(self) -> str:
        """The assembly of an NVIDIA target."""
        return self._stage("ptx")

    @property
    def amdgcn(self) -> str:
        """The assembly of an AMD target."""
        return self._stage("amdgcn")

    @cached_property
    def sass(self) -> str:
        """The machine code of an NVIDIA binary, disassembled, with source lines.

        Raises:
            UsageError: the target has none, or the disassembler cannot read the binary.
        """
        text = disassembly_of(self.binary_path) if self.target.backend == "cuda" else None
        if self.target.backend == "hip":
            raise UsageError(
                f"{self.kernel} has no SASS for {self.target}, and Triton's wheel has no disassembler for AMD. "
                "Read .amdgcn, the assembly that the binary was made from instruction by instruction."
            )
        if text is None:
            raise UsageError(f"{self.kernel} has no SASS for {self.target}; see .ptx or .amdgcn.")
        return self._relabel(text)

    def diff(self, other: Compiled, stage: str = "source") -> CompiledDiff:
        """Compare with another compiled kernel, side by side; it shows at the end of a cell.

        ``stage`` is ``source``, ``resources``, or a stage of the compile, such as ``ttir`` or ``sass``.

        Raises:
            UsageError: there is no such stage.
        """
        if stage not in DIFF_STAGES:
            raise UsageError(choice_message("stage", stage, DIFF_STAGES, owner="a comparison"))
        return CompiledDiff(self, other, stage)

    @property
    def binary(self) -> bytes:
        """The cubin or hsaco."""
        with self._reading():
            return self.binary_path.read_bytes()

    @property
    def binary_path(self) -> Path:
        """The file of the cubin or hsaco."""
        with self._reading():
            return next(path for path in self.folder.iterdir() if path.suffix in {".cubin", ".hsaco"})

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (OSError, StopIteration) as exc:
            gone = f"The files of {self.kernel} for {self.target} are gone from {self.folder}"
            raise StoreError(f"{gone}; compile it again.", kernel=self.kernel) from exc

    def text_of(self, stage: str) -> str:
        """Return the text of one of the `STAGES`.

        Raises:
            UsageError: the target has none.
        """
        return self.sass if stage == "sass" else self._stage(stage)

    def _stage(self, stage: str) -> str:
        if stage not in self.stages:
            raise UsageError(f"{self.kernel} has no {stage} for {self.target}; it has {', '.join(self.stages)}.")
        return self.stages[stage]

    def _relabel(self, text: str) -> str:
        for file, label in self.labels:
            if file != label:  # quoted in IR, before line and column in the comments of assembly
                text = text.replace(f'{file}"', f'{label}"').replace(f"{file}:", f"{label}:")
        return text


@dataclass(frozen=True, slots=True)
class CompiledDiff(Displayable):
    """Two compiled kernels, shown by their difference in resources and in one stage."""

    left: Compiled
    right: Compiled
    stage: str = "source"


def parameters_of(job: CompileJob) -> tuple[Parameter, ...]:
    """Return the parameters of a job with Triton's assumptions on each argument, in words."""
    called = tuple(f.name if f.kind == "class" else "a function" for f in job.closure.functions)
    constants = {path: constant_text(binding, called) for path, binding in job.constants}
    attributes = dict(job.attributes)
    return tuple(
        Parameter(name, _type_text(kind), _assumption_text((index,), kind, constants, attributes))
        for index, (name, kind) in enumerate(job.signature)
    )


def _type_text(kind: Any) -> str:
    return f"({', '.join(map(_type_text, kind))})" if isinstance(kind, tuple) else str(kind)


def _assumption_text(
    path: tuple[int, ...], kind: Any, constants: Mapping[Any, Any], attributes: Mapping[Any, Any]
) -> str:
    if isinstance(kind, tuple):
        parts = [_assumption_text((*path, i), k, constants, attributes) for i, k in enumerate(kind)]
        return "; ".join(f"[{i}] {part}" for i, part in enumerate(parts) if part)
    if path in constants:
        return str(constants[path])
    assumed = [
        f"divisible by {value}" if key == "tt.divisibility" else f"{key.removeprefix('tt.')} {value}"
        for key, value in attributes.get(path, ())
    ]
    return ", ".join(assumed)


def resources_of(summary: Mapping[str, Any], target: Target, num_ctas: int = 1) -> Resources:
    """Return the resources of a compiled kernel, from its compile worker's summary.

    Its blocks come in clusters of ``num_ctas``.
    """
    limits = limits_of(target)
    needed: Mapping[str, int] = summary["binary"] or {}
    threads = summary["threads"]
    static = None
    if needed and limits is not None:  # the kernel's own, without the system's share from Hopper on
        reserved = limits.reserved_shared_bytes if target.backend == "cuda" and int(target.arch) >= 90 else 0
        static = max(0, needed["static_shared_bytes"] - reserved)
    shared = summary["shared_bytes"] + (static or 0)
    columns = summary["tensor_memory_columns"]
    why_not = _why_not(shared, threads, columns or 0, target) or _why_no_cluster(num_ctas)
    share = None
    if why_not is None and limits is not None and "registers" in needed:
        needs = BlockNeeds(threads, needed["registers"], shared, needed.get("scalar_registers") or 0)
        share = occupancy(limits, needs)
    return Resources(
        registers=needed.get("registers"),
        spill_bytes=needed.get("spill_bytes"),
        stack_bytes=needed.get("stack_bytes"),
        shared_bytes=shared,
        static_shared_bytes=static,
        threads=threads,
        occupancy=share.share if share else None,
        limiter=share.limiter if share else None,
        fits=why_not is None,
        why_not=why_not,
        accumulation_registers=needed.get("accumulation_registers"),
        scalar_registers=needed.get("scalar_registers"),
        scalar_spills=needed.get("scalar_spills"),
        tensor_memory_columns=columns,
    )


def _why_not(shared: int, threads: int, columns: int, target: Target) -> str | None:
    limits = limits_of(target)
    if limits is None:
        return None
    if shared > limits.shared_bytes_per_block:
        return (
            f"it needs {shared:,} bytes of shared memory per block and {target} has {limits.shared_bytes_per_block:,}; "
            "use smaller blocks or fewer stages"
        )
    if columns > (limits.tensor_memory_columns or columns):
        return (
            f"it needs {columns:,} columns of tensor memory per block and {target} has {limits.tensor_memory_columns}; "
            "use smaller blocks or fewer accumulators"
        )
    if threads > limits.threads_per_block:
        return f"it needs {threads:,} threads per block and {target} has {limits.threads_per_block:,}; use fewer warps"
    return None


def _why_no_cluster(num_ctas: int) -> str | None:
    if num_ctas <= _MOST_BLOCKS_OF_CLUSTER:
        return None
    return f"its clusters have {num_ctas} blocks and no GPU takes more than {_MOST_BLOCKS_OF_CLUSTER}; lower num_ctas"
