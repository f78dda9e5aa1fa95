"""Writing a kept kernel as a file of one of several kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kernellab.compile.entries import read_kept
from kernellab.display import Displayable
from kernellab.errors import KernellabError, UsageError, choice_message, plural
from kernellab.export import EXPORT_KINDS
from kernellab.export.checking import OutputSummary, summarize_outputs
from kernellab.export.exchange import bundle_bytes, measurement_lines
from kernellab.export.module import module_text, why_unwritable
from kernellab.export.paths import export_path, replacement_notes
from kernellab.export.torch_op import recorded_grids_remark, torch_op_text
from kernellab.registry import RecordedVersion, VersionRow, grid_text, recorded_version, regenerated_inputs, values_of
from kernellab.registry.listing import listing
from kernellab.source import Autotune
from kernellab.store import LaunchRow, MeasurementRow, Store, Version
from kernellab.workers.scratch import write_whole

if TYPE_CHECKING:
    from kernellab._triton.kernel import Bound
    from kernellab.compile.cache import Compiler
    from kernellab.compile.types import Compiled
    from kernellab.export.binaries import BinaryFiles
    from kernellab.registry import Registry
    from kernellab.target import Target


@dataclass(frozen=True, slots=True)
class Exported(Displayable):
    """A written file: its version, its kind, and remarks for the user."""

    path: Path
    label: str
    kind: str
    notes: tuple[str, ...] = ()


ReportPage = Callable[
    [RecordedVersion, VersionRow, "Compiled | None", list[LaunchRow], list[MeasurementRow], Version | None], str
]
"""Returns the report of a version as HTML; the last argument is the version that it is compared with."""


@dataclass(frozen=True, slots=True)
class SessionKernel:
    """A kernel that this session launched, and what repeats its launch: `Lab.compile` and the device of launches.

    Kernels of other sessions may come from elsewhere, so their text is not executed.
    """

    kernel: Bound
    compile: Callable[..., Compiled]
    device: str
    compiler: Compiler


@dataclass(frozen=True, slots=True)
class ExportContext:
    """The parts of a lab that an export needs: store, folder of compiled kernels, kernel of the session, report.

    ``targets`` are those of binaries; without any, they are those of the recorded launches. ``again`` says how to
    export a kernel that this session did not launch.
    """

    store: Store
    artifacts: Path
    report_page: ReportPage
    live: SessionKernel | None = None
    targets: tuple[Target, ...] = ()
    again: str = "Launch the kernel and export it again"


def export(context: ExportContext, version: Version, to: str | Path | None, kind: str | None) -> Exported:
    """Write a kept kernel as a file; ``to`` None means `default_path`, which may replace an earlier export only.

    ``kind`` None is a module with the decorators that the kernel was launched with.

    Raises:
        UsageError: there is no such kind, the kernel cannot be written as one, or the default path is taken.
    """
    if kind is not None and kind not in EXPORT_KINDS:
        raise UsageError(choice_message("kind", kind, tuple(EXPORT_KINDS)))
    recorded = recorded_version(context.store, version)
    if context.targets and kind != "binaries":
        raise UsageError("targets= are those of kind='binaries'; other kinds compile when launched.")
    writer = WRITERS[kind or "autotune"]
    path = Path(to) if to else default_path(version.identifier, kind)
    content = writer.content(context, recorded)
    if not isinstance(content, str | bytes):
        return write_folder(path, content, version.label, is_default=not to)
    data = content if isinstance(content, bytes) else content.encode()
    replaced = () if to else replacement_notes({path: data})
    replace_file(path, data)
    written, missing = _written_kind(recorded, kind)
    return Exported(path, version.label, written, (*replaced, *missing, *writer.notes(context, recorded)))


def _written_kind(recorded: RecordedVersion, kind: str | None) -> tuple[str, tuple[str, ...]]:
    """Return the kind of a file, and a remark if that is not the one that was asked for."""
    is_tuned = any(isinstance(wrapper, Autotune) for wrapper in recorded.version.closure.wrappers)
    if is_tuned or kind not in (None, "autotune"):
        return kind or "autotune", ()
    remark = f"{recorded.version.identifier} has no @triton.autotune, so this is the file of --as module"
    return "module", () if kind is None else (remark,)


def default_path(name: str, kind: str | None, source: Path | None = None) -> Path:
    """Return where an export of a kind goes that names no path; ``source`` is the file that the kernel is read from.

    Raises:
        UsageError: what is there is that file, or no export.
    """
    return export_path(f"{name}{WRITERS[kind or 'autotune'].suffix}", name, source)


def write_folder(folder: Path, content: BinaryFiles, label: str, *, is_default: bool = False) -> Exported:
    """Write the files of exported binaries to a folder, and remove the cubins of an earlier export of the kernel.

    ``is_default`` says that the user named no path.

    Raises:
        UsageError: a file cannot be written.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{str(folder)!r} is a file; binaries need a folder.")
    replaced = replacement_notes({folder / name: data for name, data in content.files.items()}) if is_default else ()
    for name, data in content.files.items():
        replace_file(folder / name, data)
    for old in folder.glob(f"{content.kernel}-*.cubin"):
        if old.name not in content.files:
            old.unlink()
    count = sum(name.endswith(".cubin") for name in content.files)
    loaded = f"{plural(count, 'cubin')}, loaded by {content.kernel}.py"
    return Exported(folder, label, "binaries", (*replaced, loaded, *content.notes))


def _binary_files(context: ExportContext, recorded: RecordedVersion) -> BinaryFiles:
    from kernellab.export.binaries import kernel_files, recorded_variants

    live = context.live
    if live is None:
        raise UsageError(
            f"{recorded.version.label} was not launched in this session, so its text is not executed. {context.again}."
        )
    variants = recorded_variants(recorded, live.kernel, context.targets)
    return kernel_files(recorded, live.kernel, variants, live.compiler, _expected_outputs(context, recorded))


def _report_html(context: ExportContext, recorded: RecordedVersion) -> str:
    version, history = recorded.version, context.store.history
    (row,) = listing(context.store, 0.0, only=(version.id,)).rows
    older = [v for v in context.store.versions() if v.name == version.name and v.version < version.version]
    return context.report_page(
        recorded,
        row,
        compiled_launch(context, recorded),
        history.launches(version.id),
        history.measurements(version.id),
        older[-1] if older else None,
    )


def _expected_outputs(context: ExportContext, recorded: RecordedVersion) -> tuple[OutputSummary, ...]:
    live = context.live
    return () if live is None else summarize_expected_outputs(recorded, live.kernel, live.device)


def summarize_expected_outputs(recorded: RecordedVersion, kernel: Bound, device: str) -> tuple[OutputSummary, ...]:
    """Launch a kernel on the generated inputs of its exported module; return summaries of the outputs.

    Empty where the launch has a reference, cannot be repeated, or fails.
    """
    launch = recorded.launch
    if launch is None or launch.grid is None or launch.check or why_unwritable(recorded):
        return ()
    from kernellab.launch.arguments import memory_of  # what is only kept loads no Triton

    try:
        arguments = regenerated_inputs(launch, device)
        named = {**arguments, **values_of(launch)}
        by_position = [named.pop(argument.name) for argument in launch.arguments]  # one may be called grid
        with kernel.runtime.observers.own_launches():
            kernel[launch.grid](*by_position, **named)
    except KernellabError:
        return ()
    outputs, result = memory_of(arguments), recorded.result
    if result is not None and result.complete:
        outputs = {n: t for n, t in outputs.items() if n in {*result.writes, *result.atomics}}
    return summarize_outputs(outputs)


def compiled_launch(context: ExportContext, recorded: RecordedVersion) -> Compiled | None:
    """Return the kernel as compiled for its last recorded launch: compiled again if this session launched it.

    Of another session, it is read from the folder of compiled kernels, since compiling executes the kernel's text.
    None where the launch cannot be repeated, or the compiled kernel was deleted to make room.
    """
    launch, live = recorded.launch, context.live
    if launch is None:
        return None
    if live is None:
        return read_kept(context.artifacts, launch.result, recorded.version.closure.labels)
    try:
        arguments = {**regenerated_inputs(launch, live.device), **values_of(launch)}
        return live.compile(live.kernel, target=launch.target, **arguments)
    except KernellabError:
        return None


def _bundle(context: ExportContext, recorded: RecordedVersion) -> bytes:
    return bundle_bytes(context.store, recorded.version, _module_or_source(recorded))


def _module_or_source(recorded: RecordedVersion) -> str:
    try:
        return module_text(recorded, autotune=True)
    except UsageError:
        return module_text(replace(recorded, launches=(), result=None), autotune=True)


def _module_notes(context: ExportContext, recorded: RecordedVersion) -> tuple[str, ...]:
    launch = recorded.launch
    if launch is None:
        return (f"No recorded launch: the file has no check and no benchmark. {context.again}",)
    if context.live is not None or launch.check:
        return ()
    return (f"Not launched in this session, so not executed: the file has no expected outputs. {context.again}",)


def _operator_notes(context: ExportContext, recorded: RecordedVersion) -> tuple[str, ...]:
    remark = recorded_grids_remark(recorded.version.identifier, grid_text(recorded.launches))
    return (*_module_notes(context, recorded), *((remark.removesuffix("."),) if remark else ()))


def _report_notes(context: ExportContext, recorded: RecordedVersion) -> tuple[str, ...]:
    if recorded.launch is None:
        return (f"No recorded launch: the report has no compiled section. {context.again}",)
    if compiled_launch(context, recorded) is not None:
        return ()
    return (f"Not compiled here, or no longer cached: the report has no compiled section. {context.again}",)


def _bundle_notes(context: ExportContext, recorded: RecordedVersion) -> tuple[str, ...]:
    return () if recorded.launch is not None else _module_notes(context, recorded)


@dataclass(frozen=True, slots=True)
class _Writer:
    """The writer of a kind of export: the end of its path, its content, and the remarks for the user."""

    suffix: str
    content: Callable[[ExportContext, RecordedVersion], str | bytes | BinaryFiles]
    notes: Callable[[ExportContext, RecordedVersion], tuple[str, ...]]


WRITERS: Mapping[str, _Writer] = {
    "module": _Writer(".py", lambda *parts: module_text(parts[1], _expected_outputs(*parts)), _module_notes),
    "torch-op": _Writer("_op.py", lambda *parts: torch_op_text(parts[1], _expected_outputs(*parts)), _operator_notes),
    "autotune": _Writer(
        ".py", lambda *parts: module_text(parts[1], _expected_outputs(*parts), autotune=True), _module_notes
    ),
    "report": _Writer(".html", _report_html, _report_notes),
    "binaries": _Writer("_binaries", _binary_files, lambda *_: ()),  # the files have their own
    "bundle": _Writer(".zip", _bundle, _bundle_notes),
}
"""What writes each of `kernellab.export.EXPORT_KINDS`."""


def write_measurements(kernels: Registry, key: str | int | None, path: Path) -> int:
    """Write the measurements of a version, of all versions of a name, or of all kernels; return their number.

    Raises:
        UnknownName: there is no such kernel.
        UsageError: the file cannot be written, or would be larger than what can be read.
    """
    text, count = measurement_lines(kernels, key)
    replace_file(path, text.encode(), makes_folders=False)
    return count


def replace_file(path: Path, content: bytes, *, makes_folders: bool = True) -> None:
    """Write a file whole or not at all.

    Raises:
        UsageError: it cannot be written.
    """
    if path.is_dir():
        raise UsageError(f"{str(path)!r} is a folder; name a file in it.")
    try:
        if makes_folders:
            path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
    except OSError as exc:
        raise UsageError(f"{str(path)!r} cannot be written: {exc.strerror or exc}.") from exc
